"""Graphs that break careless kernels, small enough for an interpreter."""

import pytest
import torch

from onehop import Graph
from onehop.graph import placed


def _random(edges, num_src, num_dst, seed=1):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(0, num_src, (edges,), generator=generator)
    return torch.stack([source, torch.randint(0, num_dst, (edges,), generator=generator)])


def _hub(edges, nodes):
    return torch.stack([torch.arange(edges) % nodes, torch.full((edges,), nodes // 2)])


# name: (edge_index, num_src, num_dst)
GRAPHS = {
    "random": (_random(30, 9, 9), 9, 9),
    "no_edges": (torch.empty(2, 0, dtype=torch.long), 3, 4),
    "no_nodes": (torch.empty(2, 0, dtype=torch.long), 0, 0),
    "no_destinations": (torch.empty(2, 0, dtype=torch.long), 3, 0),
    "empty_rows": (_random(8, 20, 4), 20, 12),
    "one_hub": (_hub(30, 4), 4, 4),
    "multi_edges": (torch.tensor([[0, 0, 0, 1, 1, 2], [1, 1, 1, 0, 0, 2]]), 3, 3),
    "bipartite_wide": (_random(30, 25, 3), 25, 3),
    "bipartite_tall": (_random(30, 3, 25), 3, 25),
    "one_edge": (torch.tensor([[2], [0]]), 3, 1),
}

# Cases of tests.ops.operators that launch all kernels.
EVERY_KERNEL = (
    *("sum, weighted", "mean", "max", "min, weighted", "last min, heads", "sddmm, heads"),
    *("edge_softmax, heads", "gat", "gatv2", "attention"),
)


def graph_of(name):
    """One of GRAPHS."""
    edge_index, num_src, num_dst = GRAPHS[name]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def made_on_device(edge_index, num_nodes=None, size=None):
    """A graph that is made as on a GPU, here on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed, "MADE_ON", {"cpu"})
        return Graph.from_edge_index(edge_index, num_nodes, size=size)
