"""Self loops of a part: removing them, implying them, and their place in the order of the edges.

A graph with one loop at every node needs no list of loops. If edges have values, the loop's value is the last
one of its row.
"""

import dataclasses

import torch
from torch import Tensor

from onehop.distributed.part import Part


def without_loops(part: Part) -> Part:
    """Return the part without edges from a node to itself; the same object if there are none."""
    mask = part.source != part.target
    if bool(mask.all()):
        return part
    return dataclasses.replace(
        part,
        rowptr=counts_before(mask)[part.rowptr],
        source=part.source[mask],
        edge_numbers=part.edge_numbers[mask],
    )


def with_loops(part: Part) -> Part:
    """Return the part with one more self loop at every node, as the last edge of its row."""
    rows = torch.arange(len(part.owned_nodes), dtype=torch.int32, device=part.source.device)
    return dataclasses.replace(
        part,
        rowptr=looped_rowptr(part.rowptr),
        source=merged(part.rowptr, part.source, rows),
        edge_numbers=looped_numbers(part),
    )


def looped_numbers(part: Part) -> Tensor:
    """Return [e + n], int64: numbers of the edges and of the loops; loops follow all edges, by node."""
    return merged(part.rowptr, part.edge_numbers.long(), part.num_edges + part.owned_nodes.long())


def looped_rowptr(rowptr: Tensor) -> Tensor:
    """Return [n + 1]: bounds of the rows, with one loop per row."""
    return rowptr + torch.arange(len(rowptr), device=rowptr.device)


def merged(rowptr: Tensor, of_edges: Tensor, of_loops: Tensor) -> Tensor:
    """Merge values of edges [e, ...] and of loops [n, ...]; the loop is last in each row. Differentiable."""
    both = torch.cat([of_edges, of_loops])
    order = both.new_empty(len(both), dtype=torch.int64)
    order[torch.cat(_places(rowptr, len(both)))] = torch.arange(len(both), device=order.device)
    return both.index_select(0, order)


def separated(rowptr: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Split values into values of edges [e, ...] and of loops [n, ...]; inverse of :func:`merged`."""
    edges, loops = _places(rowptr, len(values))
    return values.index_select(0, edges), values.index_select(0, loops)


def _places(rowptr: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the positions of the edges, [e], and of the loops, [n], in the merged order, row by row."""
    loops = looped_rowptr(rowptr)[1:] - 1
    is_edge = torch.ones(count, dtype=torch.bool, device=rowptr.device)
    is_edge[loops] = False
    return is_edge.nonzero().squeeze(1), loops


def counts_before(mask: Tensor) -> Tensor:
    """Return [e + 1], int64: how many entries before each position are true."""
    return torch.cat([mask.new_zeros(1, dtype=torch.int64), mask.cumsum(0)])
