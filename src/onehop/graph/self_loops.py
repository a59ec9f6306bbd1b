"""Graphs with an edge from every node to itself, as in GCN's normalisation."""

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import build
from onehop.graph.graph import Graph


def with_self_loops(graph: Graph) -> Graph:
    """Return the graph with a self loop, as its row's last edge, for every node that has none.

    Edges are renumbered row by row. This needs no more memory than the graph itself, about 8 bytes per edge.

    Raises:
        ArgumentError: Sources and destinations are not the same nodes.
    """
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: self loops need the same nodes on both sides, and it has {graph.num_src} sources and "
            f"{graph.num_dst} destinations."
        )
    nodes, rowptr, col = graph.num_dst, graph.rowptr.numpy(), graph.col.numpy()
    has_loop = np.zeros(nodes, dtype=bool)
    at = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(rowptr))
    has_loop[at[at == col]] = True
    del at
    added = np.concatenate([[0], np.cumsum(~has_loop)])
    ends = rowptr + added
    is_loop = np.zeros(int(ends[-1]), dtype=bool)
    missing = np.flatnonzero(~has_loop)
    is_loop[ends[missing + 1] - 1] = True
    new_col = np.empty(len(is_loop), dtype=np.int32)
    new_col[is_loop] = missing
    new_col[~is_loop] = col
    return Graph.from_csr(torch.from_numpy(ends), torch.from_numpy(new_col))


def one_loop_each(edge_index: Tensor, num_nodes: int, forwards: bool = True) -> Graph:
    """Return a graph of the edges without self loops, followed by a self loop for every node, as in PyG.

    The edges are [2, E], int32 or int64; row 0 has the sources if ``forwards``, else the destinations. The
    loops have the last N numbers.

    Raises:
        ArgumentError: The shape, dtype or device is wrong.
        IndexRangeError: A node number is negative or too large.
    """
    return Graph(build.with_loops(edge_index, num_nodes, forwards))
