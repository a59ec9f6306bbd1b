"""Statistics against NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given

from onehop import Graph

from .strategies import edge_lists


@given(edge_lists())
def test_statistics_of_random_graphs(case) -> None:
    edge_index, size = case
    source, target = edge_index.numpy()
    degrees = np.bincount(target, minlength=size[1])
    found = Graph.from_edge_index(edge_index, size=size).statistics
    assert (found.num_src, found.num_dst, found.num_edges) == (*size, len(source))
    assert found.max_degree == degrees.max(initial=0)
    assert found.empty_rows == (degrees == 0).sum()
    assert found.mean_degree == pytest.approx(len(source) / max(size[1], 1))
    assert found.self_loops == ((source == target).sum() if size[0] == size[1] else 0)
    assert found.sorted_edges == bool((np.diff(target) >= 0).all())
    if len(source):
        assert found.mean_span == pytest.approx(np.abs(source / size[0] - target / size[1]).mean(), abs=1e-6)
    assert list(found.degree_quantiles) == sorted(found.degree_quantiles)
    if size[1]:
        assert found.degree_quantiles[0] == degrees.min()
        assert set(found.degree_quantiles) <= set(degrees.tolist())


def test_quantiles_of_a_known_distribution() -> None:
    rowptr = torch.arange(101).cumsum(0)  # degrees 1, 2, ..., 100
    graph = Graph.from_csr(rowptr, torch.zeros(int(rowptr[-1]), dtype=torch.long), num_src=1)
    assert graph.statistics.degree_quantiles == (1, 26, 51, 75, 90, 99, 100)
    assert graph.statistics.mean_degree == 50.5


def test_statistics_are_computed_once() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 0], [0, 1]]))
    assert graph.statistics is graph.statistics
    assert graph.statistics.self_loops == 1
