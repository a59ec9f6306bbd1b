"""Matching of neighbours, as used for coarsening graphs."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError, IndexRangeError
from onehop.native import CPU, address, extension


def matched(rowptr: Tensor, col: Tensor, weight: Tensor | None = None) -> Tensor:
    """Match nodes in random order, each with its unmatched neighbour over the heaviest edge.

    Args:
        rowptr: [N + 1], int64: the bounds of each node's neighbours, which ascend from 0 to E.
        col: [E], int64: the neighbours.
        weight: [E] or [E, 1]: the weight of each edge; None means equal weights. The first of equally heavy
            edges is used; edges with negative weight are ignored.

    Returns:
        [N], int64: the smaller node of each pair, or the node itself. torch's generator draws the order.

    Raises:
        ArgumentError: A shape does not fit.
        IndexRangeError: A neighbour is out of range.

    Source: Dhillon, Guan and Kulis, "Weighted graph cuts without eigenvectors", IEEE TPAMI 29(11), 2007,
    section 5.1.
    """
    nodes, edges = rowptr.numel() - 1, col.numel()
    rowptr = rowptr.to(torch.int64, copy=True).contiguous()  # a copy, so that checked values are read
    if nodes < 0 or int(rowptr[0]) or int(rowptr[-1]) != edges or bool((rowptr.diff() < 0).any()):
        raise ArgumentError(f"rowptr: expected numbers that ascend from 0 to the {edges} entries of col.")
    if weight is not None and weight.numel() != edges:
        raise ArgumentError(f"weight: expected {edges} numbers, got shape {list(weight.shape)}.")
    col = col.long().contiguous()
    graph = extension.MatchedGraph()
    graph.rowptr, graph.col, graph.nodes = address(rowptr), address(col), nodes
    if weight is not None:
        weights = weight.detach().flatten().double().contiguous()
        graph.weight = address(weights)
    order, cluster = torch.randperm(nodes, device=CPU), torch.empty(nodes, dtype=torch.int64, device=CPU)
    if not extension.match_neighbours(graph, address(order), address(cluster)):
        raise IndexRangeError(f"col: expected nodes in [0, {nodes}).")
    return cluster
