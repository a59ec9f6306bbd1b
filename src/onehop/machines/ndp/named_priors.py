"""Prior near-data machines by name, as far as their descriptions go, on the ranks of one machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.ndp.config import NdpConfig
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.hub_copies import CopiedWorkload
from onehop.machines.ndp.mapping import Pods
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.prior import PriorRun, prior_run


@dataclass(frozen=True, slots=True)
class Design:
    """The modelled part of a published machine.

    Attributes:
        mappings: Its mappings; the best of them is taken for each layer.
        left_out: What it has besides.
        source: Where it is described.
        unit_per_dimm: Whether a DIMM has one unit, which reads one rank at a time; else each rank has one.
        sums_in_dimm: Whether a DIMM adds up its ranks' outputs before the host reads them.
        copied_share: Share of the nodes, those with most edges, that every channel has a copy of.
    """

    mappings: tuple[str, ...]
    left_out: str
    source: str
    unit_per_dimm: bool = False
    sums_in_dimm: bool = False
    copied_share: float = 0.0


DESIGNS = {
    "TensorDIMM": Design(
        ("system",),
        left_out="the link to GPUs",
        source="Kwon, Lee, Rhu, MICRO 2019",
        unit_per_dimm=True,
    ),
    "RecNMP": Design(
        ("rank",),
        left_out="caches beside the ranks, scheduling by table",
        source="Ke et al., ISCA 2020",
        sums_in_dimm=True,
    ),
    "GNNear": Design(
        ("dimm",),
        left_out="the central engine, the order of shards",
        source="Zhou et al., PACT 2022; 35 % and the mapping from its artifact",
        copied_share=0.35,
    ),
    "G-NMP": Design(
        ("rank", "system"),
        left_out="combination inside the DIMM",
        source="Tian et al., Journal of Systems Architecture 129, 2022",
    ),
}


@dataclass(frozen=True, slots=True)
class NamedPrior:
    """The layers of a model on a named machine.

    Attributes:
        name: Its name.
        serial_ns: Time with the steps of every window one after another.
        overlapped_ns: Time with only the longest step of every window.
        mappings: The mapping of each layer, the one with the shortest serial time.
        reads: Feature vectors read, over all pods and layers.
    """

    name: str
    serial_ns: float
    overlapped_ns: float
    mappings: list[str]
    reads: int


def named_priors(
    config: NdpConfig, graph: Graph, widths: Sequence[int], tile: int, names: Sequence[str] = tuple(DESIGNS)
) -> list[NamedPrior]:
    """Times of a model's aggregations on prior machines, by name; targets are tiled by number.

    Args:
        config: The machine whose ranks, DRAM, units, host and control they have.
        graph: The graph; sources and destinations are the same nodes.
        widths: Columns of the feature vectors that each layer aggregates.
        tile: Targets of a tile.
        names: Some of :data:`DESIGNS`.

    Raises:
        ArgumentError: An unknown name, a graph of two kinds of nodes, a width or tile that is not a positive
            integer, or a buffer that cannot hold one output slice.
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: expected the same nodes as sources and destinations, got {graph.num_src} and "
            f"{graph.num_dst}; the copies of hubs need their results."
        )
    check_integer("tile", tile)
    for width in widths:
        check_integer("width", width)
    found = []
    for name in names:
        if name not in DESIGNS:
            raise ArgumentError(f"prior: expected some of {', '.join(DESIGNS)}, got {name!r}.")
        found.append(_named(config, graph, widths, tile, name))
    return found


def _named(config: NdpConfig, graph: Graph, widths: Sequence[int], tile: int, name: str) -> NamedPrior:
    design = DESIGNS[name]
    if design.unit_per_dimm:
        # A DIMM whose ranks share a unit is one rank to it.
        config = config.change(topology={"ranks_per_dimm": 1})
    topology, entry, burst = config.topology, config.module.adjacency_entry_bytes, config.burst_bytes
    memory = MemoryTimes.of(config)
    if design.copied_share:
        workload: RankWorkload = CopiedWorkload(graph, topology, entry, burst, design.copied_share)
    else:
        workload = RankWorkload(graph, topology, entry, burst, retile="index")
    best: list[PriorRun] = []
    for width in widths:
        runs = [
            prior_run(
                config,
                workload,
                memory,
                Pods.of(topology, mapping),
                tile,
                width,
                sums_in_dimm=design.sums_in_dimm,
            )
            for mapping in design.mappings
        ]
        best.append(min(runs, key=lambda run: run.serial_ns))
    return NamedPrior(
        name,
        sum(run.serial_ns for run in best),
        sum(run.overlapped_ns for run in best),
        [run.mapping for run in best],
        sum(run.reads for run in best),
    )
