"""The plan of the near-rank machine (:mod:`onehop.machines.ndp`)."""

from dataclasses import dataclass, replace

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan, check_flag, check_named

PODS = ("rank", "dimm", "channel", "2-channel", "4-channel", "system")
# onehop.machines.ndp.mappings.register appends users' own mappings.
MAPPINGS = ["adaptive", *PODS]
MERGES = ("rows", "ranks", "round_robin")
# Tilings whose order depends on the batch.
BATCHED = ("ranks", "round_robin")
TILINGS = (*MERGES, "index", "none", "adaptive")
# Tilings among which "adaptive" chooses.
TRIED_TILINGS = ("index", "rows", "ranks")
HOST_ORDERS = ("after", "ahead", "between", "early")
# Orders that need bundles which use the channels.
BETWEEN_BUNDLES = ("between", "early")


@dataclass(frozen=True, slots=True)
class NdpPlan(Plan):
    """Layout of a layer on the ranks, and the order in which its targets are processed.

    Attributes:
        mapping: The pods: ``rank``, ``dimm``, ``channel``, ``2-channel``, ``4-channel``, ``system``; or
            ``adaptive``, which takes the mapping that the time model predicts to be fastest for the layer. Or
            a user's own mapping: the name under which it was registered, or ``FILE.py:CLASS``.
        tile: Number of targets that are processed together; a source that several of them need is read once.
        retile: Assignment of targets to tiles. ``rows``, ``ranks`` and ``round_robin`` re-tile, with the
            units' lists merged row by row, unit by unit or in turn. ``index`` tiles in node order. ``none``
            uses no tiles, so every edge reads its source; Figure 7 is relative to it. ``rows`` is the order
            drawn in GraNDe's Figure 6 (b). ``ranks`` and ``round_robin`` are ours; they need no record of the
            lists' rows, and save fewer reads. ``adaptive`` takes ``index``, ``rows`` or ``ranks`` for each
            layer, as the time model predicts to be fastest for the whole model; re-tiling is paid once.
        batch: Number of nodes that the units list before the lists are merged. None means one window of the
            layer in which the graph is re-tiled, as in the paper's text; other numbers are our extension.
            With ``rows``, the order does not depend on the batch.
        broadcast: Whether a bundle is written once to all modules of a channel, and inside a DIMM without
            using the channel. False is never faster; it is schedule (d) of GraNDe's Figure 5.
        host_order: When the host reads the outputs of a window and writes its final vectors. ``after``: after
            the next window's bundles, as drawn in the paper's Figure 5. ``ahead``: as ``after``, but ranks
            read the adjacency of the next window before they wait for final vectors. ``between``: in parts
            between the next window's bundles, with the adjacency read ahead. ``early``: as ``between``, but
            parts begin while the ranks still read the next window's adjacency. The last two are available
            only if bundles use the channels. ``adaptive`` takes the order that the time model predicts to be
            fastest for the mapping.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> plan = ndp.NdpPlan(mapping="rank", retile="index")
        >>> out, report = ndp.Machine().aggregate(graph, torch.tensor([[1.0], [10.0], [5.0]]), plan)
        >>> out.flatten().tolist(), report.figures["mapping"]
        ([0.0, 1.0, 11.0], 'rank')
    """

    mapping: str = "adaptive"
    tile: int = 128
    retile: str = "rows"
    batch: int | None = None
    broadcast: bool = True
    host_order: str = "adaptive"

    def __post_init__(self) -> None:
        """Check every field."""
        orders = ("adaptive", *HOST_ORDERS)
        for name, allowed in (("mapping", MAPPINGS), ("retile", TILINGS), ("host_order", orders)):
            check_named(name, getattr(self, name), allowed, own=name == "mapping")
        for name, unset in (("tile", False), ("batch", True)):
            value = getattr(self, name)
            if unset and value is None:
                continue
            if type(value) is not int or not 1 <= value < 2**31:
                raise ArgumentError(f"plan: {name} must be an integer of at least 1, not {value!r}.")
        check_flag("broadcast", self.broadcast)

    @property
    def reorders(self) -> bool:
        """Return whether targets are processed in an order other than node order."""
        return self.retile in MERGES

    @property
    def tried(self) -> tuple["NdpPlan", ...]:
        """Return the plans among which an adaptive tiling chooses, index order first; else only this plan."""
        if self.retile != "adaptive":
            return (self,)
        return tuple(replace(self, retile=each) for each in TRIED_TILINGS)
