"""Copies of the nodes with most edges in every channel, as GNNear keeps them."""

import numpy as np
import torch
from numpy.typing import NDArray

from onehop.graph import Graph
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import Integers, owners
from onehop.machines.ndp.sections import Topology


class CopiedWorkload(RankWorkload):
    """A graph by number whose hubs lie in every channel, at the same place of each.

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
    """Return [H]: the nodes with the most edges as sources, in order of their numbers.

    Args:
        graph: The graph.
        share: Share of the nodes, rounded down.
    """
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
