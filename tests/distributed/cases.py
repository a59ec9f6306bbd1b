"""Graphs and features that every process of a test can make for itself."""

import torch

NODES = 60


def hostile() -> torch.Tensor:
    """[2, E]: a hub, repeated edges, self loops, and nodes without edges."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, NODES - 5, (2, 500), generator=generator)
    edge_index[1, :120] = 7
    edge_index[:, 130:140] = edge_index[:, 120:130]
    edge_index[0, 140:150] = edge_index[1, 140:150]
    return edge_index


def random(*shape: int, seed: int = 2, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
