"""Numbers of nodes within their parts."""

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


def inner_first(owner: Tensor, boundary: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers each part's nodes: those without sources in other parts first, then the rest.

    Args:
        owner: [N], int32, the part of every node.
        boundary: [N], bool, the nodes with sources in other parts.
        parts: Number of parts.

    Returns:
        The bounds of each part's inner and other nodes [2 * parts + 1], int64; the nodes in this order [N],
        int32; each node's number within its part [N], int32.
    """
    bounds, nodes = grouped(owner * 2 + boundary, 2 * parts)
    local = torch.empty_like(owner)
    begins = bounds[:-1:2].repeat_interleave(bounds[::2].diff())
    local[nodes] = (torch.arange(len(owner), device="cpu") - begins).int()
    return bounds, nodes, local
