"""Numbers of nodes within their parts, and of the edges of rows."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop.graph import Graph


def grouped(keys: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Group numbers by their keys, [N] of int32 from 0 to ``groups`` - 1, in one native pass.

    Returns the bounds of the groups [groups + 1], int64, and the numbers [N], int32, ascending within each
    group.
    """
    numbers = torch.arange(len(keys), dtype=torch.int32, device="cpu")
    by_key = Graph.from_edge_index(torch.stack([numbers, keys]), size=(len(keys), groups))
    return by_key.rowptr, by_key.col


def edges_of(rowptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the edges of some rows, [e], row after row, and the edge counts, [rows]."""
    first = np.asarray(rowptr[rows])
    counts = rowptr[rows + 1] - first
    before = counts.cumsum() - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum()), counts


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbers of nodes within their parts: first nodes without sources in other parts, then the rest.

    Attributes:
        bounds: [2 * parts + 1], int64: the bounds of each part's inner and other nodes.
        nodes: [N], int32: the nodes in this order.
        local: [N], int32: each node's number within its part.
    """

    bounds: Tensor
    nodes: Tensor
    local: Tensor

    def owned(self, rank: int) -> Tensor:
        """Return [n], int32: the nodes of a part in its order, as a new tensor."""
        return self.nodes[int(self.bounds[2 * rank]) : int(self.bounds[2 * rank + 2])].clone()

    def inner_rows(self, rank: int) -> int:
        """Return the number of a part's nodes without sources in other parts."""
        return int(self.bounds[2 * rank + 1] - self.bounds[2 * rank])


def inner_first(owner: Tensor, boundary: Tensor | int, parts: int) -> Numbering:
    """Number the nodes of each part; ``owner``, [N] of int32, gives the part of each node.

    Nodes with sources in other parts, marked in ``boundary`` [N], come last; 0 means that there are none.
    """
    bounds, nodes = grouped(owner * 2 + boundary, 2 * parts)
    local = torch.empty_like(owner)
    begins = bounds[:-1:2].repeat_interleave(bounds[::2].diff())
    local[nodes] = (torch.arange(len(owner), device="cpu") - begins).int()
    return Numbering(bounds, nodes, local)
