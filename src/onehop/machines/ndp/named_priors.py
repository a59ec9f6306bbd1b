"""Prior near-data machines by name, modelled as far as they are published, on the ranks of one machine.

A design is a class; :data:`DESIGNS` has the published ones, and users can register their own.
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
    """A published near-data machine, as far as it is modelled; subclasses override what differs.

    Attributes:
        name: The design's name.
        mappings: The design's mappings; each layer uses the best of them.
        left_out: Features of the design that are not modelled.
        source: The publication that describes it.

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
        """Return the machine as the design's units see it; by default, each rank has one unit.

        Args:
            config: The machine whose ranks, DRAM, units, host and control the design uses.
        """
        return config

    def workload(self, config: NdpConfig, graph: Graph, pods: Pods | None) -> RankWorkload:
        """Return the graph on the ranks, in node order.

        Args:
            config: The machine as the design's units see it.
            graph: The graph; sources and destinations are the same nodes.
            pods: A user's mapping that assigns nodes to ranks; None means that nodes are assigned in turn.
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
    """TensorDIMM: one unit per DIMM, which reads one rank at a time."""

    name, mappings = "TensorDIMM", ("system",)
    left_out = "the link to GPUs"
    source = "Kwon, Lee, Rhu, MICRO 2019"

    def on(self, config: NdpConfig) -> NdpConfig:
        """Return the machine with one rank per DIMM, because the ranks of a DIMM share one unit."""
        return config.change(topology={"ranks_per_dimm": 1})


@DESIGNS.register
class RecNmp(Design):
    """RecNMP: a DIMM adds up its ranks' outputs before the host reads them."""

    name, mappings = "RecNMP", ("rank",)
    left_out = "caches beside the ranks, scheduling by table"
    source = "Ke et al., ISCA 2020"

    def output_bytes(self, traffic: LayerTraffic) -> Integers:
        """Return [W, DIMMs]: bytes of the whole vectors that each DIMM has added up."""
        dimm = Pods.of(traffic.config.topology, "dimm")
        return traffic.counts.touched[dimm.size] * (traffic.width * ELEMENT_BYTES)


@DESIGNS.register
class GnnNear(Design):
    """GNNear: every channel has a copy of the nodes with the most edges.

    Attributes:
        copied_share: Share of the nodes that are copied.
    """

    name, mappings = "GNNear", ("dimm",)
    left_out = "the central engine, the order of shards"
    source = "Zhou et al., PACT 2022; 35 % and the mapping from its artifact"
    copied_share = 0.35

    def workload(self, config: NdpConfig, graph: Graph, pods: Pods | None) -> RankWorkload:
        """Return the graph with copied nodes."""
        entry = config.module.adjacency_entry_bytes
        return CopiedWorkload(graph, config.topology, entry, config.burst_bytes, self.copied_share)


@DESIGNS.register
class GNmp(Design):
    """G-NMP: vectors are whole in one rank, or cut over all ranks."""

    name, mappings = "G-NMP", ("rank", "system")
    left_out = "combination inside the DIMM"
    source = "Tian et al., Journal of Systems Architecture 129, 2022"


@dataclass(frozen=True, slots=True)
class NamedPrior:
    """The layers of a model on a named prior machine.

    Attributes:
        name: The machine's name.
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
    """Return the times of a model's aggregations on prior machines by name; targets are tiled in node order.

    Args:
        config: The machine whose ranks, DRAM, units, host and control the prior machines use.
        graph: The graph; sources and destinations are the same nodes.
        widths: Columns of the feature vectors that each layer aggregates.
        tile: Number of targets in a tile.
        names: Some of :data:`DESIGNS`, or classes as ``FILE.py:CLASS``; None means all of them.

    Raises:
        ArgumentError: A name is unknown, the graph's sources and destinations are different nodes, a width or
            tile is not a positive integer, or a buffer cannot hold one output slice.

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
    """A graph in node order with a copy of every hub in every channel, at the same place of each channel.

    An edge from a hub is read in the channel of its target, so the target needs partial sums of that channel
    only. An edge from another node is read in the channel of its source. A hub's new vector is written to
    every channel.

    Args:
        graph: The graph; sources and destinations are the same nodes.
        topology: The ranks that nodes are assigned to.
        entry_bytes: Bytes of an edge of the adjacency.
        burst_bytes: Bytes of a DRAM burst.
        share: Share of the nodes that are hubs: the nodes with the most outgoing edges; lower numbers win
            ties.
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
    """Return [H]: this share of the nodes, rounded down, with the most outgoing edges, ascending."""
    degree = graph.out_degrees.numpy()
    return np.sort(np.argsort(-degree, kind="stable")[: int(share * graph.num_src)])


def _copied(graph: Graph, topology: Topology, owner: NDArray[np.uint8], hub: Integers) -> Graph:
    """Return the graph in which each edge from a hub starts at the hub's copy in the target's channel."""
    number = np.full(graph.num_src, -1, dtype=np.int64)
    number[hub] = np.arange(len(hub))
    col = graph.col.numpy().astype(np.int64)
    target = np.repeat(np.arange(graph.num_dst), np.diff(graph.rowptr.numpy()))
    channel = owner[target].astype(np.int64) // topology.ranks_per_channel
    copy = graph.num_src + number[col] * topology.channels + channel
    source = torch.from_numpy(np.where(number[col] >= 0, copy, col))
    return Graph.from_csr(graph.rowptr, source, num_src=graph.num_src + len(hub) * topology.channels)
