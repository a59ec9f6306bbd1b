"""Prior near-data machines by name, as far as their descriptions go, on the ranks of one machine.

A design is a class; :data:`DESIGNS` has the published ones, and users register their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.common.registry import Registry
from onehop.machines.ndp.case import LayerCase
from onehop.machines.ndp.config import NdpConfig, Topology
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import ELEMENT_BYTES, Integers, Pods, owners
from onehop.machines.ndp.memory_times import MemoryTimes
from onehop.machines.ndp.prior import PriorRun, prior_run
from onehop.machines.ndp.traffic import LayerTraffic
from onehop.plans.ndp import NdpPlan


class Design:
    """A machine that others describe, as far as it is modelled; subclasses override what differs.

    Attributes:
        name: Its name.
        mappings: Its mappings; the best of them is taken for each layer.
        left_out: What it has besides.
        source: Where it is described.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> @ndp.DESIGNS.register
        ... class Mine(ndp.Design):
        ...     name, mappings = "mine", ("dimm",)
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))  # a ring
        >>> [run] = ndp.named_priors(ndp.load("grande_16"), graph, widths=[64], tile=128, names=["mine"])
        >>> run.reads  # each vector once
        4
    """

    name: str
    mappings: tuple[str, ...]
    left_out: str = ""
    source: str = ""

    def on(self, config: NdpConfig) -> NdpConfig:
        """The machine as its units see it; unless overridden, with one unit for each rank.

        Args:
            config: The machine whose ranks, DRAM, units, host and control it has.
        """
        return config

    def workload(self, config: NdpConfig, graph: Graph, pods: Pods | None) -> RankWorkload:
        """The graph on the ranks, by number.

        Args:
            config: The machine as its units see it.
            graph: The graph; sources and destinations are the same nodes.
            pods: A user's mapping, which assigns nodes to ranks; None means in turn.
        """
        entry = config.module.adjacency_entry_bytes
        return RankWorkload(graph, config.topology, entry, config.burst_bytes, retile="index", pods=pods)

    def output_bytes(self, traffic: LayerTraffic) -> Integers:
        """Return [W, a multiple of the channels]: bytes of outputs that the host reads, window by window.

        Args:
            traffic: The layer's bytes under the mapping.
        """
        return traffic.output_bytes


DESIGNS = Registry("prior", Design, [])


@DESIGNS.register
class TensorDimm(Design):
    """One unit a DIMM, which reads one rank at a time."""

    name, mappings = "TensorDIMM", ("system",)
    left_out = "the link to GPUs"
    source = "Kwon, Lee, Rhu, MICRO 2019"

    def on(self, config: NdpConfig) -> NdpConfig:
        """A DIMM whose ranks share a unit is one rank to it."""
        return config.change(topology={"ranks_per_dimm": 1})


@DESIGNS.register
class RecNmp(Design):
    """A DIMM adds up its ranks' outputs before the host reads them."""

    name, mappings = "RecNMP", ("rank",)
    left_out = "caches beside the ranks, scheduling by table"
    source = "Ke et al., ISCA 2020"

    def output_bytes(self, traffic: LayerTraffic) -> Integers:
        """Return [W, DIMMs]: bytes of whole vectors that each DIMM has added up."""
        dimm = Pods.of(traffic.config.topology, "dimm")
        return traffic.counts.touched[dimm.size] * (traffic.width * ELEMENT_BYTES)


@DESIGNS.register
class GnnNear(Design):
    """Every channel has a copy of the nodes with most edges.

    Attributes:
        copied_share: Share of the nodes.
    """

    name, mappings = "GNNear", ("dimm",)
    left_out = "the central engine, the order of shards"
    source = "Zhou et al., PACT 2022; 35 % and the mapping from its artifact"
    copied_share = 0.35

    def workload(self, config: NdpConfig, graph: Graph, pods: Pods | None) -> RankWorkload:
        """The graph with copies."""
        entry = config.module.adjacency_entry_bytes
        return CopiedWorkload(graph, config.topology, entry, config.burst_bytes, self.copied_share)


@DESIGNS.register
class GNmp(Design):
    """Vectors whole in a rank, or cut over all."""

    name, mappings = "G-NMP", ("rank", "system")
    left_out = "combination inside the DIMM"
    source = "Tian et al., Journal of Systems Architecture 129, 2022"


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
    config: NdpConfig, graph: Graph, widths: Sequence[int], tile: int, names: Sequence[str] | None = None
) -> list[NamedPrior]:
    """Times of a model's aggregations on prior machines, by name; targets are tiled by number.

    Args:
        config: The machine whose ranks, DRAM, units, host and control they have.
        graph: The graph; sources and destinations are the same nodes.
        widths: Columns of the feature vectors that each layer aggregates.
        tile: Targets of a tile.
        names: Some of :data:`DESIGNS`, or classes as ``FILE.py:CLASS``; None means all of them.

    Raises:
        ArgumentError: An unknown name, a graph of two kinds of nodes, a width or tile that is not a positive
            integer, or a buffer that cannot hold one output slice.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))  # a ring
        >>> for prior in ndp.named_priors(ndp.load("grande_16"), graph, widths=[64], tile=128):
        ...     print(prior.name, prior.mappings)
        TensorDIMM ['system']
        RecNMP ['rank']
        GNNear ['dimm']
        G-NMP ['system']
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: expected the same nodes as sources and destinations, got {graph.num_src} and "
            f"{graph.num_dst}; the copies of hubs need their results."
        )
    check_integer("tile", tile)
    for width in widths:
        check_integer("width", width)
    designs = [DESIGNS.named(name) for name in (DESIGNS if names is None else names)]
    return [_on(design, config, graph, widths, tile) for design in designs]


def _on(design: Design, config: NdpConfig, graph: Graph, widths: Sequence[int], tile: int) -> NamedPrior:
    config = design.on(config)
    memory, plan = MemoryTimes.of(config), NdpPlan(tile=tile, retile="index")
    pods = [Pods.of(config.topology, mapping) for mapping in design.mappings]
    works = {own: design.workload(config, graph, own) for own in {each.own for each in pods}}
    best: list[PriorRun] = []
    for width in widths:
        case = LayerCase(config, memory, plan, width)
        runs = [prior_run(case, works[each.own], each, design.output_bytes) for each in pods]
        best.append(min(runs, key=lambda run: run.serial_ns))
    return NamedPrior(
        design.name,
        sum(run.serial_ns for run in best),
        sum(run.overlapped_ns for run in best),
        [run.mapping for run in best],
        sum(run.reads for run in best),
    )


class CopiedWorkload(RankWorkload):
    """A graph by number whose hubs are in every channel, at the same place of each.

    An edge from a hub is read in the channel of its target, so that the target needs that channel's partial
    sums alone; an edge from another node in the channel of its source. A hub's new vector is written to every
    channel.

    Args:
        graph: The graph; sources and destinations are the same nodes.
        topology: The ranks that nodes are assigned to.
        entry_bytes: Bytes of an edge of the adjacency.
        burst_bytes: Bytes of a DRAM burst.
        share: Share of the nodes that are hubs: those with the most edges as sources, of equal ones the
            first.
    """

    def __init__(
        self, graph: Graph, topology: Topology, entry_bytes: int, burst_bytes: int, share: float
    ) -> None:
        owner = owners(topology, graph.num_src)
        self.hubs = hubs(graph, share)
        copied = _copied(graph, topology, owner, self.hubs)
        super().__init__(copied, topology, entry_bytes, burst_bytes, retile="index")
        first = np.arange(topology.channels, dtype=np.int64) * topology.ranks_per_channel
        copies = (owner[self.hubs].astype(np.int64) % topology.ranks_per_channel)[:, None] + first
        self.owner = np.concatenate([owner, copies.reshape(-1).astype(np.uint8)])

    def _rows(self, block: int) -> Integers:
        rows = super()._rows(block)
        ranks, each = self.topology.ranks, self.topology.ranks_per_channel
        own = self.target_owner[self.hubs].astype(np.int64)
        for channel in range(self.topology.channels):
            away = own // each != channel
            at = self.hubs[away] // block * ranks + channel * each + own[away] % each
            rows += np.bincount(at, minlength=rows.size).reshape(rows.shape)
        return rows


def hubs(graph: Graph, share: float) -> Integers:
    """Return [H]: that share of the nodes, rounded down, with the most edges as sources, ascending."""
    degree = graph.out_degrees.numpy()
    return np.sort(np.argsort(-degree, kind="stable")[: int(share * graph.num_src)])


def _copied(graph: Graph, topology: Topology, owner: NDArray[np.uint8], hub: Integers) -> Graph:
    """The graph whose edges from hubs have the copy in their target's channel as source, after all nodes."""
    number = np.full(graph.num_src, -1, dtype=np.int64)
    number[hub] = np.arange(len(hub))
    col = graph.col.numpy().astype(np.int64)
    target = np.repeat(np.arange(graph.num_dst), np.diff(graph.rowptr.numpy()))
    channel = owner[target].astype(np.int64) // topology.ranks_per_channel
    copy = graph.num_src + number[col] * topology.channels + channel
    source = torch.from_numpy(np.where(number[col] >= 0, copy, col))
    return Graph.from_csr(graph.rowptr, source, num_src=graph.num_src + len(hub) * topology.channels)
