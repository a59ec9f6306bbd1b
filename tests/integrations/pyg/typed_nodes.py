"""Nodes of several types and the edges between them, at random."""

import torch
from torch import Tensor

EdgeType = tuple[str, str, str]


def features_of(nodes: dict[str, int], width: int) -> dict[str, Tensor]:
    """[count, width] for each type of nodes, of which there are so many; they need gradients."""
    return {name: torch.randn(count, width, requires_grad=True) for name, count in nodes.items()}


def edges_of(nodes: dict[str, int], counts: dict[EdgeType, int]) -> dict[EdgeType, Tensor]:
    """[2, count] for each type of edges; none of them leads to the last two nodes of more than two."""
    return {
        each: torch.stack(
            [torch.randint(nodes[each[0]], (count,)), torch.randint(max(nodes[each[2]] - 2, 1), (count,))]
        )
        for each, count in counts.items()
    }
