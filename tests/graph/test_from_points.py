"""Graphs of points and their neighbours."""

import math

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph
from tests.points.naive import neighbours


@pytest.mark.parametrize(("k", "radius"), [(3, math.inf), (None, 0.8), (2, 0.8), (0, 1.0), (100, math.inf)])
@pytest.mark.parametrize("ptr", [None, torch.tensor([0, 9, 9, 10, 30])])
def test_edges(k, radius, ptr):
    pos = torch.randn(30, 3)
    graph = Graph.from_points(pos, k=k, radius=radius, ptr=ptr)
    pairs = neighbours(pos, pos, k, ptr, ptr, r=radius, omit_self=True)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (30, 30, len(pairs))
    x = torch.randn(30, 4, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for point, neighbour in pairs:
        expected[point] += x[neighbour]
    torch.testing.assert_close(onehop.aggregate(graph, x), expected)


def test_bad_input():
    with pytest.raises(ArgumentError, match="k, radius: expected at least one of them"):
        Graph.from_points(torch.randn(4, 2))
    with pytest.raises(ArgumentError, match="k: expected at least 0, got -1"):
        Graph.from_points(torch.randn(4, 2), k=-1)
    with pytest.raises(ArgumentError, match="radius: expected at least 0"):
        Graph.from_points(torch.randn(4, 2), radius=math.nan)
    with pytest.raises(ArgumentError, match=r"^pos: row 1 is not finite"):
        Graph.from_points(torch.tensor([[0.0], [math.nan]]), k=1)
    for ptr in (torch.tensor([0, 3, 2, 4]), torch.tensor([0, 3])):
        with pytest.raises(ArgumentError, match=r"^ptr: expected numbers that ascend from 0 to the 4 rows"):
            Graph.from_points(torch.randn(4, 2), k=1, ptr=ptr)
