"""The choices of the near-rank machine (:mod:`onehop.machines.ndp`)."""

import json
from dataclasses import asdict, dataclass, fields

from onehop.errors import ArgumentError

PODS = ("rank", "dimm", "channel", "2-channel", "4-channel", "system")
MAPPINGS = ("adaptive", *PODS)
MERGES = ("rows", "ranks", "round_robin")
TILINGS = (*MERGES, "index", "none")


@dataclass(frozen=True, slots=True)
class NdpPlan:
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

    def to_json(self) -> str:
        """The plan as a JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "NdpPlan":
        """The plan that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is no JSON object, or has a field that plans do not have.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"plan: not JSON ({error}).") from error
        if not isinstance(values, dict):
            raise ArgumentError(f"plan: expected a JSON object, got {type(values).__name__}.")
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ArgumentError(f"plan: unknown field {', '.join(unknown)}; a plan has {', '.join(known)}.")
        return cls(**values)
