"""Partitioning of nodes over processes: parts of equal work with few rows to send between them."""

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.streamed_partition import Blocks, streamed
from onehop.errors import ArgumentError
from onehop.graph import Graph, metis
from onehop.graph.orders import node_orders
from onehop.graph.stored import StoredGraph

METHODS = ("auto", "metis", "greedy", "streamed")

# Rounds of moving single nodes; the first four give most of the gain.
_ROUNDS = 12
# Largest work of a part, relative to the mean.
_IMBALANCE = 1.05
# Neighbour counts, nodes times parts, are computed for this many at a time.
_COUNTS = 1 << 24
# A streamed graph is read in at least this many blocks, each of at most this many edges.
_BLOCKS, _BLOCK_EDGES = 256, 1 << 22


def partition(graph: Graph | StoredGraph, parts: int, method: str = "auto", seed: int = 0) -> Tensor:
    """The part of every node.

    "greedy" cuts the order of communities (:mod:`onehop.graph.orders`) into pieces of equal work, then moves
    nodes to the part with most of their neighbours, as long as that part has room. The work of a node is 1 +
    its in-degree. "streamed" reads the rows in order, a few times, and keeps a few numbers for every node
    (:mod:`onehop.distributed.streamed_partition`): the method for graphs that stay on disk. The same graph,
    number of parts and seed give the same parts.

    Args:
        graph: With as many destinations as sources; in memory, or :meth:`onehop.Graph.open`'s.
        parts: Number of parts.
        method: "metis" (needs pymetis), "greedy", "streamed", or "auto": "streamed" for a graph on disk, else
            METIS if it is installed, else greedy.
        seed: Seed of the greedy method.

    Returns:
        [N], int32, from 0 to ``parts`` - 1.

    Raises:
        ArgumentError: The graph is bipartite, or there are fewer than one part, or the method is unknown or
            needs the graph in memory.
        ConfigurationError: "metis" without pymetis.
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: expected as many sources as destinations, got {graph.num_src} and {graph.num_dst}."
        )
    if parts < 1:
        raise ArgumentError(f"parts: expected one or more, got {parts}.")
    if method not in METHODS:
        raise ArgumentError(f"method: expected one of {', '.join(METHODS)}, got {method!r}.")
    if isinstance(graph, StoredGraph) and method in ("metis", "greedy"):
        raise ArgumentError(
            f"method: {method!r} needs the graph in memory; give 'streamed', or partition graph.load()."
        )
    if method == "metis":
        metis.require("method 'metis'", instead="greedy")
    if parts == 1 or graph.num_edges == 0:
        return (
            torch.arange(graph.num_dst, device="cpu")
            .mul_(parts)
            .div_(max(graph.num_dst, 1), rounding_mode="floor")
            .int()
        )
    if isinstance(graph, StoredGraph) or method == "streamed":
        return _streamed(graph, parts)
    return _metis(graph, parts) if metis.installed() and method != "greedy" else _greedy(graph, parts, seed)


def _streamed(graph: Graph | StoredGraph, parts: int) -> Tensor:
    rows = -(-graph.num_dst // _BLOCKS)
    edges = min(-(-graph.num_edges // _BLOCKS), _BLOCK_EDGES)
    if isinstance(graph, StoredGraph):
        return streamed(lambda: graph.blocks(rows, edges), torch.from_numpy(np.diff(graph.rowptr)), parts)
    degrees = graph.in_degrees

    def blocks() -> Blocks:
        for begin in range(0, graph.num_dst, rows):
            end = min(begin + rows, graph.num_dst)
            yield begin, degrees[begin:end], graph.col[int(graph.rowptr[begin]) : int(graph.rowptr[end])]

    return streamed(blocks, degrees, parts)


def cut_edges(graph: Graph, part: Tensor) -> int:
    """Number of edges whose ends are in different parts."""
    target = torch.repeat_interleave(part, graph.in_degrees)
    return int((part[graph.col.long()] != target).sum())


def _metis(graph: Graph, parts: int) -> Tensor:
    source, target = graph.edge_index()
    kept = source != target  # METIS does not accept loops
    ends = torch.stack([source[kept], target[kept]])
    both = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), graph.num_dst)
    return metis.parts_of(both.rowptr, both.col, parts, 1 + graph.in_degrees).int()


def _greedy(graph: Graph, parts: int, seed: int) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    work = 1 + graph.in_degrees
    most = int(work.sum()) / parts * _IMBALANCE
    part = _pieces(graph, work, parts)
    best, fewest = part, cut_edges(graph, part)
    turned = graph.transpose()
    for _ in range(_ROUNDS):
        part = part.clone()
        # Half of the nodes in each round: if neighbours moved at the same time, they would only swap places.
        may_move = torch.rand(len(part), generator=chance, device="cpu") < 0.5
        gain, goal = _gains(graph, turned, part, parts)
        _move(part, goal, gain.masked_fill_(~may_move, 0), work, most, parts)
        now = cut_edges(graph, part)
        if now >= fewest:
            break
        best, fewest = part, now
    return best


def _pieces(graph: Graph, work: Tensor, parts: int) -> Tensor:
    """The order of communities in pieces of equal work."""
    order = node_orders(graph.csr, "community").dst.long()
    before = work[order].cumsum(0) - work[order]
    part = torch.empty(len(order), dtype=torch.int32, device="cpu")
    part[order] = (before * parts // int(work.sum())).int()
    return part


def _gains(graph: Graph, turned: Graph, part: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Return each node's part with most of its neighbours, and their excess over those in its own part."""
    nodes = len(part)
    gain, goal = (torch.empty(nodes, dtype=torch.int64, device="cpu") for _ in range(2))
    step = max(_COUNTS // parts, 1)
    for begin in range(0, nodes, step):
        end = min(begin + step, nodes)
        counts = torch.zeros((end - begin) * parts, dtype=torch.int64, device="cpu")
        for each in (graph, turned):
            first, last = int(each.rowptr[begin]), int(each.rowptr[end])
            degrees = each.rowptr[begin : end + 1].diff()
            row = torch.repeat_interleave(torch.arange(end - begin, device="cpu"), degrees)
            key = row * parts + part[each.col[first:last].long()]
            counts += torch.bincount(key, minlength=len(counts))
        table = counts.view(-1, parts)
        most, goal[begin:end] = table.max(1)
        gain[begin:end] = most - table.gather(1, part[begin:end, None].long()).squeeze(1)
    return gain, goal


def _move(part: Tensor, goal: Tensor, gain: Tensor, work: Tensor, most: float, parts: int) -> None:
    """Moves nodes, largest gain first, into parts that have room."""
    load = torch.zeros(parts, dtype=torch.int64, device="cpu").index_add_(0, part.long(), work)
    for number in range(parts):
        wanted = ((goal == number) & (gain > 0)).nonzero().squeeze(1)
        wanted = wanted[gain[wanted].sort(descending=True, stable=True).indices]
        part[wanted[work[wanted].cumsum(0) + load[number] <= most]] = number
