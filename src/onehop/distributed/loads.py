"""Loads of parts: their rows and the edges that end there; both are balanced.

Rows take memory and dense products; edges take aggregation time. A part with a mean sum of both may have many
times the mean of one of them.
"""

import torch
from torch import Tensor

from onehop.graph import Graph

# Maximum rows, and maximum edges, of a part, relative to the mean.
IMBALANCE = 1.1


def loads_of(degrees: Tensor) -> Tensor:
    """Return [N, 2], int64: for each node, one row and the number of edges that end there."""
    return torch.stack([torch.ones_like(degrees), degrees], 1)


def limits(nodes: int, edges: int, parts: int) -> Tensor:
    """Return [2], float64: the maximum rows and edges of a part; at least one more than the mean."""
    mean = torch.tensor([nodes, edges], dtype=torch.float64, device="cpu") / parts
    return torch.maximum(mean * IMBALANCE, mean.ceil() + 1)


def loads(graph: Graph, part: Tensor, parts: int) -> Tensor:
    """Return [parts, 2], int64: the number of rows and edges of each part."""
    sums = torch.zeros(parts, 2, dtype=torch.int64, device="cpu")
    return sums.index_add_(0, part, loads_of(graph.in_degrees))


def imbalance(graph: Graph, part: Tensor, parts: int) -> tuple[float, float]:
    """Return the most rows, and the most edges, of any part, relative to the mean."""
    totals = loads(graph, part, parts).double()
    rows, edges = (totals.max(0).values / totals.mean(0).clamp(min=1 / parts)).tolist()
    return rows, edges


def sums_before(group: Tensor, work: Tensor, groups: int) -> Tensor:
    """Return [nodes, K]: for each node, the sum of work, [nodes, K], over the nodes before it in its group.

    Group numbers, [nodes] of int64, must ascend.
    """
    sums = torch.cat([work.new_zeros(1, work.size(1)), work.cumsum(0)])
    counts = torch.bincount(group, minlength=groups)
    return sums[:-1] - sums[counts.cumsum(0) - counts][group]


def admitted(goals: Tensor, work: Tensor, load: Tensor, most: Tensor) -> Tensor:
    """Return [nodes], bool: the nodes for which their parts have room; earlier nodes come first.

    Args:
        goals: [nodes], int64, ascending: the part of each node.
        work: [nodes, K], loads of each node.
        load: [parts, K], loads of each part without these nodes.
        most: [K], the maximum loads.
    """
    fits = sums_before(goals, work, len(load)) + work + load[goals] <= most
    # A load of zero is no reason to refuse a node.
    return (fits | (work == 0)).all(1)
