"""Graphs for the near-rank machine's tests."""

import torch

from onehop.graph import Graph
from tests.ops.hostile_graphs import HOSTILE


def hostile(case: str) -> Graph:
    """One of the graphs that break careless kernels."""
    edge_index, num_src, num_dst = HOSTILE[case]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def random_graph(nodes: int, edges: int, seed: int = 0, num_src: int | None = None) -> Graph:
    """Edges drawn evenly, repeated ones included."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(0, num_src or nodes, (edges,), generator=generator)
    target = torch.randint(0, nodes, (edges,), generator=generator)
    return Graph.from_edge_index(torch.stack([source, target]), size=(num_src or nodes, nodes))


def circulant(nodes: int, degree: int) -> Graph:
    """Target i has the sources i, i + 1, ..., i + degree - 1: as many edges of every rank in every window."""
    target = torch.arange(nodes).repeat_interleave(degree)
    source = (target + torch.arange(degree).repeat(nodes)) % nodes
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=nodes)
