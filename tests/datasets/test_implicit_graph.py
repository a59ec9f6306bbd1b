"""Graphs of which nothing is kept: the same from both ends, and with the figures that were asked for."""

import numpy as np
import pytest
import torch

from onehop import ArgumentError, IndexRangeError
from onehop.datasets import degree_tail, implicit
from onehop.datasets.block_model import BlockModel
from onehop.datasets.implicit_graph import ImplicitGraph
from tests.datasets.checks import check_edges

MODEL = BlockModel(
    num_nodes=20_001, num_pairs=200_000, tail=3.0, largest_degree=1_000, community=60.0, inside=0.6
)


@pytest.fixture(scope="module")
def graph() -> ImplicitGraph:
    return ImplicitGraph(MODEL)


@pytest.fixture(scope="module")
def whole(graph: ImplicitGraph) -> tuple[np.ndarray, np.ndarray]:
    return graph.rows(np.arange(MODEL.num_nodes))


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        BlockModel(num_nodes=64, num_pairs=200, tail=2.5, largest_degree=30, community=9.0, inside=1.0),
        BlockModel(num_nodes=7, num_pairs=5, tail=2.5, largest_degree=6, community=3.0, inside=0.0),
    ],
    ids=["large", "one stride", "no insides"],
)
def test_symmetric_and_simple(model: BlockModel) -> None:
    rowptr, col = ImplicitGraph(model, seed=3).rows(np.arange(model.num_nodes))
    row = np.repeat(np.arange(model.num_nodes), np.diff(rowptr))
    assert (rowptr.dtype, col.dtype) == (np.int64, np.int32)
    check_edges(row, col, model.num_nodes)


def test_as_many_edges_as_asked_for_nearly(whole: tuple[np.ndarray, np.ndarray]) -> None:
    assert len(whole[1]) == pytest.approx(2 * MODEL.num_pairs, rel=0.05)


def test_degrees_follow_the_tail(whole: tuple[np.ndarray, np.ndarray]) -> None:
    found = np.sort(np.diff(whole[0]))[::-1]
    wanted = degree_tail.degrees(MODEL.num_nodes, 20.0, MODEL.tail, MODEL.largest_degree)[::-1]
    for ranks in (slice(0, 20), slice(20, 200), slice(200, 2_000), slice(2_000, 20_000)):
        assert found[ranks].mean() == pytest.approx(wanted[ranks].mean(), rel=0.25)


def test_rows_do_not_depend_on_who_else_is_asked_for(
    graph: ImplicitGraph, whole: tuple[np.ndarray, np.ndarray]
) -> None:
    nodes = np.array([19_999, 3, 3, 0, 77])
    rowptr, col = graph.rows(nodes)
    for place, node in enumerate(nodes):
        expected = whole[1][whole[0][node] : whole[0][node + 1]]
        assert np.array_equal(col[rowptr[place] : rowptr[place + 1]], expected)


def test_the_seed_decides_and_threads_do_not(whole: tuple[np.ndarray, np.ndarray]) -> None:
    torch.set_num_threads(3)
    nodes = np.arange(MODEL.num_nodes)
    assert np.array_equal(ImplicitGraph(MODEL).rows(nodes)[1], whole[1])
    assert not np.array_equal(ImplicitGraph(MODEL, seed=1).rows(nodes)[1][:500], whole[1][:500])


def test_communities_make_triangles(whole: tuple[np.ndarray, np.ndarray]) -> None:
    rowptr, col = whole
    rows = [set(col[rowptr[v] : rowptr[v + 1]].tolist()) for v in range(MODEL.num_nodes)]
    shares = []
    for v in range(0, MODEL.num_nodes, 50):
        if len(rows[v]) > 1:
            closed = sum(len(rows[u] & rows[v]) for u in rows[v])
            shares.append(closed / (len(rows[v]) * (len(rows[v]) - 1)))
    assert np.mean(shares) > 0.1


def test_no_rows(graph: ImplicitGraph) -> None:
    rowptr, col = graph.rows([])
    assert rowptr.tolist() == [0]
    assert len(col) == 0


def test_memory(graph: ImplicitGraph) -> None:
    assert 6 * MODEL.num_nodes < graph.nbytes < 8 * MODEL.num_nodes


@pytest.mark.parametrize("nodes", [[-1], [0, 20_001]], ids=str)
def test_no_such_node(graph: ImplicitGraph, nodes: list[int]) -> None:
    with pytest.raises(IndexRangeError, match=rf"nodes: {nodes[-1]} is not in \[0, 20001\)"):
        graph.rows(nodes)


@pytest.mark.parametrize("nodes", [[[0]], [0.5]], ids=str)
def test_not_a_list_of_whole_numbers(graph: ImplicitGraph, nodes: list) -> None:
    with pytest.raises(ArgumentError, match="expected a list of whole numbers"):
        graph.rows(nodes)


def test_twins_by_name() -> None:
    graph = implicit("amazon", seed=2)
    assert graph.num_nodes == 410_236
    rowptr, _ = graph.rows(np.arange(0, 410_236, 40))
    assert np.diff(rowptr).mean() == pytest.approx(4_878_874 / 410_236, rel=0.06)


def test_bad_names_and_seeds() -> None:
    with pytest.raises(ArgumentError, match="no twin with communities is called 'road'; there are arxiv"):
        implicit("road")
    with pytest.raises(ArgumentError, match="seed: expected zero or more"):
        implicit("amazon", seed=-1)


def test_self_loops_come_last_in_their_rows():
    nodes = [5, 0, 77, 5]
    plain_ends, plain = implicit("amazon").rows(nodes)
    ends, col = implicit("amazon", self_loops=True).rows(nodes)
    assert np.array_equal(np.diff(ends), np.diff(plain_ends) + 1)
    for number, node in enumerate(nodes):
        row = col[ends[number] : ends[number + 1]]
        assert row[-1] == node
        assert np.array_equal(row[:-1], plain[plain_ends[number] : plain_ends[number + 1]])
