"""Estimates from windows, against counts on the whole graph."""

import numpy as np
import pytest

from benchmarks.machines.sampled_reads import shared_reads
from onehop.datasets.block_model import BlockModel
from onehop.datasets.implicit_graph import ImplicitGraph

MODEL = BlockModel(
    num_nodes=100_000, num_pairs=400_000, tail=3.0, largest_degree=500, community=40.0, inside=0.7
)


@pytest.fixture(scope="module")
def graph() -> ImplicitGraph:
    return ImplicitGraph(MODEL)


@pytest.fixture(scope="module")
def edges(graph: ImplicitGraph) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the whole graph with self loops, rows and columns ascending."""
    rowptr, col = graph.rows(np.arange(MODEL.num_nodes))
    loops = np.arange(MODEL.num_nodes)
    row = np.concatenate([np.repeat(loops, np.diff(rowptr)), loops])
    col = np.concatenate([col, loops])
    order = np.lexsort((col, row))
    return row[order], col[order]


def saved(edges: tuple[np.ndarray, np.ndarray], order: np.ndarray, tile: int) -> float:
    """Percent of reads saved, counted."""
    place = np.empty(MODEL.num_nodes, dtype=np.int64)
    place[order] = np.arange(MODEL.num_nodes) // tile
    row, col = edges
    return 100 * (1 - len(np.unique(place[row] * MODEL.num_nodes + col)) / len(row))


def test_index_order(graph: ImplicitGraph, edges: tuple[np.ndarray, np.ndarray]) -> None:
    for tile, found in shared_reads(graph, "index", [4, 128], nodes=512).items():
        exact = saved(edges, np.arange(MODEL.num_nodes), tile)
        assert found.percent == pytest.approx(exact, abs=4 * found.error)
        assert found.error < 0.2


def test_row_order(graph: ImplicitGraph, edges: tuple[np.ndarray, np.ndarray]) -> None:
    _, first = np.unique(edges[1], return_index=True)
    order = edges[1][np.sort(first)]
    found = shared_reads(graph, "rows", [4, 128], nodes=256, strata=8)
    for tile, estimate in found.items():
        exact = saved(edges, order, tile)
        assert exact > 5, "else there would be nothing to estimate"
        assert estimate.percent == pytest.approx(exact, abs=4 * estimate.error)
        assert estimate.error < 2.0


def test_the_seed_decides(graph: ImplicitGraph) -> None:
    first = shared_reads(graph, "index", [16], nodes=64, strata=3)
    assert shared_reads(graph, "index", [16], nodes=64, strata=3) == first
    assert shared_reads(graph, "index", [16], nodes=64, strata=3, seed=1) != first


def test_progress_ends_at_the_whole(graph: ImplicitGraph) -> None:
    told: list[float] = []
    shared_reads(graph, "rows", [16], nodes=64, strata=3, progress=lambda what, done: told.append(done))
    assert told == [1 / 3, 2 / 3, 1.0]
