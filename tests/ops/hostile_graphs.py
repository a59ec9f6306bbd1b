"""Graphs that break careless kernels, by name."""

import torch
from torch import Tensor

from onehop import Graph


def _random(edges: int, num_src: int, num_dst: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    source = torch.randint(0, num_src, (edges,), generator=generator)
    target = torch.randint(0, num_dst, (edges,), generator=generator)
    return torch.stack([source, target])


def _hub(edges: int, nodes: int) -> Tensor:
    generator = torch.Generator().manual_seed(8)
    source = torch.randint(0, nodes, (edges,), generator=generator)
    return torch.stack([source, torch.full((edges,), nodes // 2)])


# name: (edge_index, num_src, num_dst)
HOSTILE: dict[str, tuple[Tensor, int, int]] = {
    "random": (_random(300, 40, 40), 40, 40),
    "no_edges": (torch.empty(2, 0, dtype=torch.long), 5, 7),
    "no_nodes": (torch.empty(2, 0, dtype=torch.long), 0, 0),
    "no_destinations": (torch.empty(2, 0, dtype=torch.long), 4, 0),
    "empty_rows": (_random(30, 50, 10), 50, 90),
    "one_hub": (_hub(3000, 60), 60, 60),
    "multi_edges": (torch.tensor([[0, 0, 0, 1, 1, 2], [1, 1, 1, 0, 0, 2]]), 3, 3),
    "self_loops": (torch.arange(9).repeat(2, 1), 9, 9),
    "bipartite_wide": (_random(200, 70, 9), 70, 9),
    "bipartite_tall": (_random(200, 9, 70), 9, 70),
    "one_edge": (torch.tensor([[2], [0]]), 3, 1),
}


def graph_of(name: str) -> Graph:
    """One of HOSTILE."""
    edge_index, num_src, num_dst = HOSTILE[name]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))
