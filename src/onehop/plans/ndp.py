"""The choices of the near-rank machine (:mod:`onehop.machines.ndp`)."""

from dataclasses import dataclass, replace

from onehop.errors import ArgumentError
from onehop.plans.plan import Plan, check_flag, check_named

PODS = ("rank", "dimm", "channel", "2-channel", "4-channel", "system")
# Users append their own: onehop.machines.ndp.mappings.register does.
MAPPINGS = ["adaptive", *PODS]
MERGES = ("rows", "ranks", "round_robin")
# Those whose order depends on the batch.
BATCHED = ("ranks", "round_robin")
TILINGS = (*MERGES, "index", "none", "adaptive")
# Those among which "adaptive" chooses.
TRIED_TILINGS = ("index", "rows", "ranks")
HOST_ORDERS = ("after", "ahead", "between", "early")
# Those that need bundles which use the channels.
BETWEEN_BUNDLES = ("between", "early")


@dataclass(frozen=True, slots=True)
class NdpPlan(Plan):
    """Layout of a layer on the ranks, and the order of processing its targets.

    Attributes:
        mapping: The pods: ``rank``, ``dimm``, ``channel``, ``2-channel``, ``4-channel``, ``system``; or
            ``adaptive``, the one of these that the time model predicts to be the fastest for the layer. Or a
            user's own: the name under which it was registered, or ``FILE.py:CLASS``.
        tile: Targets that are processed together; a source that several of them need is read once.
        retile: Assignment of targets to tiles. ``rows``, ``ranks``, ``round_robin``: re-tiling, with the
            units' lists merged row by row, unit by unit or in turn; ``index``: by number; ``none``: no tiles,
            every edge reads its source. ``rows`` is the order that GraNDe's Figure 6 (b) draws; ``ranks`` and
            ``round_robin`` are ours, need no record of the lists' rows, and save fewer reads.
            ``none`` is what Figure 7 is relative to. ``adaptive``: for each layer ``index``, ``rows`` or
            ``ranks``, whichever the time model predicts to be the fastest for the whole model; re-tiling is
            paid once.
        batch: Nodes that the units list before the lists are merged. None means those of one window of the
            layer in which the graph is re-tiled, as the text has it; any number is ours. With ``rows`` the
            order does not depend on it.
        broadcast: Whether a bundle is written once to all modules of a channel, and inside a DIMM without
            using the channel. False is never faster: it is schedule (d) of GraNDe's Figure 5.
        host_order: When the host reads the outputs of a window and writes its final vectors. ``after``: after
            the next window's bundles, as the paper's Figure 5 draws it. ``ahead``: the same, and ranks read
            the adjacency of the next window before they wait for final vectors. ``between``: in parts between
            the next window's bundles, with the adjacency read ahead. ``early``: the same, and parts begin
            while the ranks still read the next window's adjacency. The last two only where bundles use the
            channels. ``adaptive``: the one that the time model predicts to be the fastest for the mapping.

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
        """Checks every field."""
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
        """Return whether targets are processed in another order than that of their numbers."""
        return self.retile in MERGES

    @property
    def tried(self) -> tuple["NdpPlan", ...]:
        """Return the plans among which an adaptive tiling chooses, index order first; else the plan alone."""
        if self.retile != "adaptive":
            return (self,)
        return tuple(replace(self, retile=each) for each in TRIED_TILINGS)
