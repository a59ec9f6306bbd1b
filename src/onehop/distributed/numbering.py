"""Numbers of nodes within their parts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph


def grouped(keys: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Groups numbers by their keys, in one native pass.

    Args:
        keys: [N], int32, from 0 to ``groups`` - 1.
        groups: Number of groups.

    Returns:
        The bounds of the groups [groups + 1], int64, and the numbers [N], int32, ascending inside each.
    """
    numbers = torch.arange(len(keys), dtype=torch.int32, device="cpu")
    by_key = Graph.from_edge_index(torch.stack([numbers, keys]), size=(len(keys), groups))
    return by_key.rowptr, by_key.col


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbers of nodes within their parts: those without sources in other parts first, then the rest.

    Attributes:
        bounds: [2 * parts + 1], int64: the bounds of each part's inner and other nodes.
        nodes: [N], int32: the nodes in this order.
        local: [N], int32: each node's number within its part.
    """

    bounds: Tensor
    nodes: Tensor
    local: Tensor

    def owned(self, rank: int) -> Tensor:
        """Return [n], int32: the nodes of a part, a new tensor, in its order."""
        return self.nodes[int(self.bounds[2 * rank]) : int(self.bounds[2 * rank + 2])].clone()

    def inner_rows(self, rank: int) -> int:
        """Number of a part's nodes without sources in other parts."""
        return int(self.bounds[2 * rank + 1] - self.bounds[2 * rank])


def in_order(owner: Tensor, parts: int) -> Numbering:
    """Numbers each part's nodes by their numbers in the graph.

    Args:
        owner: [N], int32, the part of every node.
        parts: Number of parts.
    """
    return inner_first(owner, torch.zeros(len(owner), dtype=torch.bool, device="cpu"), parts)


def inner_first(owner: Tensor, boundary: Tensor, parts: int) -> Numbering:
    """Numbers each part's nodes.

    Args:
        owner: [N], int32, the part of every node.
        boundary: [N], bool, the nodes with sources in other parts.
        parts: Number of parts.
    """
    bounds, nodes = grouped(owner * 2 + boundary, 2 * parts)
    local = torch.empty_like(owner)
    begins = bounds[:-1:2].repeat_interleave(bounds[::2].diff())
    local[nodes] = (torch.arange(len(owner), device="cpu") - begins).int()
    return Numbering(bounds, nodes, local)
