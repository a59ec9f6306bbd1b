"""Partitioning of nodes over processes: parts of equal work with few rows to send between them."""

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.balancing import balanced
from onehop.distributed.refinement import BothWays, refined
from onehop.distributed.streamed_partition import Blocks, streamed
from onehop.errors import ArgumentError
from onehop.graph import Graph, metis
from onehop.graph.orders import node_orders
from onehop.graph.stored import StoredGraph

METHODS = ("auto", "metis", "greedy", "streamed")

# A streamed graph is read in at least this many blocks, each of at most this many edges; a block of more than
# twice the mean is read in pieces.
_BLOCKS, _BLOCK_EDGES = 256, 1 << 22


def partition(graph: Graph | StoredGraph, parts: int, method: str = "auto", seed: int = 0) -> Tensor:
    """The part of every node.

    Rows and edges of the parts are balanced both, to within a tenth where the graph allows that.
    "greedy" cuts the order of communities (:mod:`onehop.graph.orders`) into pieces; "metis" asks METIS. Nodes
    then leave parts that have too many (:mod:`onehop.distributed.balancing`), and move to the part with most
    of their neighbours, as long as that part has room. "streamed" reads the rows in order, a few times, and
    keeps a few numbers for every node (:mod:`onehop.distributed.streamed_partition`): the method for graphs
    that stay on disk. The same graph, number of parts and seed give the same parts.

    Args:
        graph: With as many destinations as sources; in memory, or :meth:`onehop.Graph.open`'s.
        parts: Number of parts.
        method: "metis" (needs pymetis), "greedy", "streamed", or "auto": "streamed" for a graph on disk, else
            METIS if it is installed, else greedy.
        seed: Seed of the moves; "streamed" has none.

    Returns:
        [N], int32, from 0 to ``parts`` - 1.

    Raises:
        ArgumentError: The graph is bipartite, or there are fewer than one part, or the method is unknown or
            needs the graph in memory.
        ConfigurationError: "metis" without pymetis.
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: expected as many sources as destinations, got {graph.num_src} and {graph.num_dst}; "
            "partition_types divides bipartite graphs."
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
    both = BothWays(graph, graph.transpose())
    found = _metis(graph, parts) if metis.installed() and method != "greedy" else _pieces(graph, parts)
    return refined(both, balanced(both, found, parts), parts, seed)


def _streamed(graph: Graph | StoredGraph, parts: int) -> Tensor:
    rows = -(-graph.num_dst // _BLOCKS)
    edges = min(2 * -(-graph.num_edges // _BLOCKS), _BLOCK_EDGES)
    if isinstance(graph, StoredGraph):
        return streamed(lambda: graph.blocks(rows, edges), torch.from_numpy(np.diff(graph.rowptr)), parts)
    degrees = graph.in_degrees

    def blocks() -> Blocks:
        for begin in range(0, graph.num_dst, rows):
            end = min(begin + rows, graph.num_dst)
            yield begin, degrees[begin:end], graph.col[int(graph.rowptr[begin]) : int(graph.rowptr[end])]

    return streamed(blocks, degrees, parts)


def _metis(graph: Graph, parts: int) -> Tensor:
    source, target = graph.edge_index()
    kept = source != target  # METIS does not accept loops
    ends = torch.stack([source[kept], target[kept]])
    undirected = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), graph.num_dst)
    return metis.parts_of(undirected.rowptr, undirected.col, parts, _work(graph)).int()


def _pieces(graph: Graph, parts: int) -> Tensor:
    """The order of communities in pieces of equal work."""
    work = _work(graph)
    order = node_orders(graph.csr, "community").dst.long()
    before = work[order].cumsum(0) - work[order]
    part = torch.empty(len(order), dtype=torch.int32, device="cpu")
    part[order] = (before * parts // int(work.sum())).int()
    return part


def _work(graph: Graph) -> Tensor:
    """Return [N], int64: a node's row, which counts as the mean of edges, and its edges."""
    return graph.in_degrees + -(-graph.num_edges // graph.num_dst)
