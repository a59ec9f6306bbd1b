"""The choices of the near-rank machine (:mod:`onehop.machines.ndp`)."""

from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan

PODS = ("rank", "dimm", "channel", "2-channel", "4-channel", "system")
MAPPINGS = ("adaptive", *PODS)
MERGES = ("rows", "ranks", "round_robin")
TILINGS = (*MERGES, "index", "none")


@dataclass(frozen=True, slots=True)
class NdpPlan(Plan):
    """How a layer is laid out on the ranks, and in which order its targets are worked on.

    Attributes:
        mapping: The pods: ``rank``, ``dimm``, ``channel``, ``2-channel``, ``4-channel``, ``system``; or
            ``adaptive``, the one of these that the model of time finds the fastest for the layer.
        tile: Targets that are worked on together, a source that several of them need being read once.
        retile: How targets come into tiles. ``rows``, ``ranks``, ``round_robin``: re-tiling, with the units'
            lists merged row by row, unit by unit or in turn; ``index``: by their numbers; ``none``: no tiles,
            every edge reads its source.
        batch: Nodes that the units list before the lists are merged, for ``ranks`` and ``round_robin``; with
            ``rows`` the order does not depend on it.
        broadcast: Whether a bundle is written once to all modules of a channel, and inside a DIMM past the
            channel.
    """

    mapping: str = "adaptive"
    tile: int = 128
    retile: str = "rows"
    batch: int = 2048
    broadcast: bool = True

    def __post_init__(self) -> None:
        """Checks every field."""
        for name, allowed in (("mapping", MAPPINGS), ("retile", TILINGS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ArgumentError(f"plan: {name} must be one of {', '.join(allowed)}, not {value!r}.")
        for name in ("tile", "batch"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value < 2**31:
                raise ArgumentError(f"plan: {name} must be an integer of at least 1, not {value!r}.")
        if not isinstance(self.broadcast, bool):
            raise ArgumentError(f"plan: broadcast must be true or false, not {self.broadcast!r}.")

    @property
    def reorders(self) -> bool:
        """Whether targets are worked on in another order than that of their numbers."""
        return self.retile in MERGES
