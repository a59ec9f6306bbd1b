"""Graphs made on the device of their edges, here the CPU, have the native builder's arrays, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given

import onehop
from onehop import ArgumentError, Graph, IndexRangeError, thresholds
from onehop.graph import placed
from tests.graph.strategies import edge_lists, expected

CPU = torch.device("cpu")
EDGES = {
    "no nodes": ([], [], (0, 0)),
    "no edges": ([], [], (4, 3)),
    "no sources": ([], [], (0, 4)),
    "no destinations": ([], [], (4, 0)),
    "one edge": ([2], [0], (3, 1)),
    "repeated edges and loops": ([0, 0, 0, 1, 1, 2, 2], [1, 1, 1, 1, 0, 2, 2], (3, 3)),
    "isolated rows": ([7, 0, 7], [9, 0, 9], (8, 12)),
    "in order": ([3, 1, 0, 2], [0, 0, 1, 2], (4, 3)),
    "descending": ([0, 1, 2], [2, 1, 0], (3, 3)),
    "a hub": ([*range(40)], [5] * 40, (40, 6)),
    "a hub among others": ([0, 1, 2, 3, 4, 1], [1, 1, 0, 1, 1, 4], (5, 5)),
    "more sources": ([6, 0, 3, 6], [1, 0, 1, 0], (7, 2)),
}


@pytest.fixture(autouse=True)
def made_on_the_cpu(monkeypatch):
    monkeypatch.setattr(placed, "MADE_ON", {"cpu"})


def native(edge_index, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placed, "MADE_ON", set())
        return Graph.from_edge_index(edge_index, size=size)


def assert_alike(there, csr):
    """All arrays, and their dtypes; a native graph without a permutation has the identity."""
    assert (there.rows, there.cols, there.edges) == (csr.rows, csr.cols, csr.edges)
    wide = torch.int64 if csr.edges > thresholds.now.wide_edges else torch.int32
    perm = torch.arange(csr.edges, dtype=wide) if csr.perm is None else csr.perm
    for found, wanted in ((there.rowptr, csr.rowptr), (there.col, csr.col), (there.perm, perm)):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def assert_same_graph(edge_index, size):
    made, known = Graph.from_edge_index(edge_index, size=size), native(edge_index, size)
    assert made.made_on == CPU
    assert known.made_on is None
    assert_alike(made.on(CPU), known.csr)
    assert_alike(made.on(CPU, transposed=True), known.transposed_csr)
    assert torch.equal(made.on(CPU).edge_index(), edge_index.long())
    # The naive twin, apart from the native builder.
    rowptr, col, order = expected(edge_index, size)
    np.testing.assert_array_equal(made.on(CPU).rowptr.numpy(), rowptr)
    np.testing.assert_array_equal(made.on(CPU).col.numpy(), col)
    np.testing.assert_array_equal(made.on(CPU).perm.numpy(), order)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", EDGES)
def test_arrays_are_those_of_the_native_builder(name, dtype):
    source, target, size = EDGES[name]
    assert_same_graph(torch.tensor([source, target], dtype=dtype).reshape(2, -1), size)


@given(edge_lists())
def test_arrays_of_random_graphs(case):
    assert_same_graph(*case)


def test_numbers_of_edges_in_64_bits():
    with thresholds.changed(wide_edges=0):
        assert_same_graph(torch.tensor([[2, 0, 1], [1, 1, 0]]), (3, 2))


def test_edges_with_gaps_in_memory():
    wide = torch.randint(0, 9, (2, 60), generator=torch.Generator().manual_seed(0))
    assert_same_graph(wide[:, ::3], (9, 9))
    assert_same_graph(wide.t().contiguous().t(), (9, 9))
    assert_same_graph(wide.flip(0), (9, 9))


def test_the_host_has_the_same_graph_when_it_asks():
    edge_index = torch.tensor([[4, 0, 2, 2], [1, 0, 1, 0]])
    made, known = Graph.from_edge_index(edge_index, size=(5, 2)), native(edge_index, (5, 2))
    assert torch.equal(made.rowptr, known.rowptr)
    assert torch.equal(made.col, known.col)
    assert torch.equal(made.perm, known.perm)
    assert torch.equal(made.edge_index(), edge_index)
    assert torch.equal(made.in_degrees, known.in_degrees)
    assert made.statistics == known.statistics
    turned = made.transpose()
    assert_alike(turned.on(CPU), known.transposed_csr)
    assert_alike(turned.on(CPU, transposed=True), known.csr)
    assert torch.equal(turned.edge_index(), edge_index.flip(0))
    x = torch.randn(5, 3)
    assert torch.equal(onehop.aggregate(made, x), onehop.aggregate(known, x))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("end", [0, 1])
def test_a_wrong_number_is_reported_as_the_native_builder_does(end, number, dtype):
    edge_index = torch.tensor([[0, 1, 2, 0], [0, 2, 2, 1]], dtype=dtype)
    edge_index[end, 2] = number
    with pytest.raises(IndexRangeError) as wanted:
        native(edge_index, (3, 3))
    with pytest.raises(IndexRangeError) as found:
        Graph.from_edge_index(edge_index, size=(3, 3))
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("number", [2**32, 2**32 + 1, -(2**32)])
def test_a_number_that_32_bits_would_make_a_right_one_of(number):
    with pytest.raises(IndexRangeError, match=f"source {number} of edge 1"):
        Graph.from_edge_index(torch.tensor([[0, number], [0, 1]]), size=(3, 3))


def test_too_many_nodes_are_refused():
    with pytest.raises(ArgumentError, match="32 bits"):
        Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), size=(2**31, 3))


def test_more_edges_than_torch_sorts_go_to_the_host(monkeypatch):
    monkeypatch.setattr(placed, "MOST_EDGES", 3)
    assert Graph.from_edge_index(torch.zeros(2, 3, dtype=torch.long), 1).made_on == CPU
    monkeypatch.setattr(placed, "MADE_ON", {"cuda"})
    assert Graph.from_edge_index(torch.zeros(2, 4, dtype=torch.long), 1).made_on is None


def test_bytes_count_where_they_are():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [2, 1, 0]]), 3)
    own = 4 * 8 + 3 * 4 + 3 * 4
    assert graph.nbytes == graph.nbytes_by_device[CPU] == own
    graph.on(CPU, transposed=True)
    assert graph.nbytes == 2 * own
