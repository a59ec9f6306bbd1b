"""Random graphs: what their names promise."""

import numpy as np
import pytest
import torch

from onehop import ArgumentError
from onehop.datasets import chung_lu, grid
from tests.datasets.checks import check_edges, check_progress


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(2000, 30_000), (100, 4000), (5, 10)], ids=str)
def test_chung_lu_is_simple_and_symmetric(num_nodes: int, num_edges: int) -> None:
    edge_index = chung_lu(num_nodes, num_edges, seed=1)
    assert edge_index.shape == (2, num_edges)
    assert edge_index.dtype == torch.int64
    check_edges(*edge_index, num_nodes)


def test_chung_lu_has_the_degrees_of_its_weights() -> None:
    num_nodes, num_edges = 20_000, 200_000
    degrees = torch.bincount(chung_lu(num_nodes, num_edges)[0], minlength=num_nodes)
    weights = np.arange(1, num_nodes + 1) ** -0.6
    expected = weights / weights.sum() * num_edges
    found = degrees.sort(descending=True).values.numpy()
    # Averages over ranks, where chance evens out.
    for ranks in (slice(0, 50), slice(50, 500), slice(500, 5000), slice(5000, 20_000)):
        assert found[ranks].mean() == pytest.approx(expected[ranks].mean(), rel=0.1)
    hubs = degrees.topk(50).indices.float()
    assert hubs.mean() == pytest.approx(num_nodes / 2, rel=0.3), "ranks are shuffled over the numbers"


def test_without_skew_all_nodes_are_alike() -> None:
    degrees = torch.bincount(chung_lu(1000, 50_000, exponent=0)[0])
    assert degrees.max() < 100


def test_the_seed_decides() -> None:
    assert torch.equal(chung_lu(300, 2000, seed=3), chung_lu(300, 2000, seed=3))
    assert not torch.equal(chung_lu(300, 2000, seed=3), chung_lu(300, 2000, seed=4))


def test_progress_ends_at_the_whole() -> None:
    told: list[float] = []
    chung_lu(500, 4000, progress=lambda what, done: told.append(done))
    check_progress(told)


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(10, 7), (10, 46), (1, 2), (0, 2)], ids=str)
def test_impossible_numbers_of_edges(num_nodes: int, num_edges: int) -> None:
    with pytest.raises(ArgumentError, match="num_edges"):
        chung_lu(num_nodes, num_edges)


def test_a_graph_without_edges() -> None:
    assert chung_lu(10, 0).shape == (2, 0)


def test_grid() -> None:
    edge_index = grid(3, 4)
    check_edges(*edge_index, 12)
    assert edge_index.size(1) == 2 * (3 * 3 + 2 * 4)
    row, column = edge_index // 4, edge_index % 4
    assert bool(((row[0] - row[1]).abs() + (column[0] - column[1]).abs() == 1).all())


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)], ids=str)
def test_narrow_grids(shape: tuple[int, int]) -> None:
    assert grid(*shape).size(1) == 2 * (shape[0] * shape[1] - 1)
