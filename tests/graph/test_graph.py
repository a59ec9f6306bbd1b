"""Graphs against a stable sort by destination, and against SciPy."""

import concurrent.futures
import copy
import gc
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given

from onehop import Graph, IndexRangeError
from onehop.graph import by_number

from .strategies import assert_is, edge_lists


def random_edges(rng: np.random.Generator, num_src: int, num_dst: int, count: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([rng.integers(0, num_src, count), rng.integers(0, num_dst, count)]))


@given(edge_lists())
def test_arrays_of_random_graphs(case: tuple[torch.Tensor, tuple[int, int]]) -> None:
    edge_index, size = case
    graph = Graph.from_edge_index(edge_index, size=size)
    assert_is(graph, edge_index, size)
    assert torch.equal(graph.edge_index(), edge_index.long())


@given(edge_lists())
def test_transpose_of_random_graphs_numbers_the_callers_edges(
    case: tuple[torch.Tensor, tuple[int, int]],
) -> None:
    edge_index, size = case
    graph = Graph.from_edge_index(edge_index, size=size)
    turned = graph.transpose()
    assert (turned.num_src, turned.num_dst) == (size[1], size[0])
    assert torch.equal(turned.edge_index(), edge_index.flip(0).long())
    assert torch.equal(turned.transpose().edge_index(), edge_index.long())


@pytest.mark.parametrize("threads_used", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1000, 700, 120_000), (90_000, 90_000, 100_000), (50, 1, 80_000)], ids=str)
def test_large_graphs_are_the_same_with_any_number_of_threads(rng, shape, threads_used: int) -> None:
    num_src, num_dst, count = shape
    edge_index = random_edges(rng, num_src, num_dst, count)
    torch.set_num_threads(threads_used)
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    assert_is(graph, edge_index, (num_src, num_dst))
    by_source = torch.sort(graph.edge_index()[0], stable=True)
    turned = graph.transpose()
    assert torch.equal(torch.repeat_interleave(torch.arange(num_src), turned.in_degrees), by_source.values)
    assert torch.equal(turned.edge_index(), edge_index.flip(0))


@pytest.mark.parametrize("threads_used", [1, 2, 4])
def test_sorted_edges_are_recognised_across_threads(rng, threads_used: int) -> None:
    torch.set_num_threads(threads_used)
    edge_index = random_edges(rng, 500, 40_000, 150_000)
    edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    graph = Graph.from_edge_index(edge_index, size=(500, 40_000))
    assert graph.perm is None
    assert_is(graph, edge_index, (500, 40_000))


def test_one_edge_out_of_order_at_a_seam_between_threads_is_seen() -> None:
    torch.set_num_threads(4)
    count = 1 << 18
    for seam in (count // 4, count // 2, 3 * count // 4):
        target = torch.arange(count)
        target[seam - 1], target[seam] = seam, seam - 1
        edge_index = torch.stack([torch.zeros(count, dtype=torch.long), target])
        assert_is(Graph.from_edge_index(edge_index, num_nodes=count), edge_index, (count, count))


def test_edges_that_lie_side_by_side_in_memory(rng) -> None:
    pairs = random_edges(rng, 40, 40, 300).t().contiguous()
    assert not pairs.t().is_contiguous()
    assert_is(Graph.from_edge_index(pairs.t(), num_nodes=40), pairs.t(), (40, 40))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_every_other_edge_of_a_larger_tensor(rng, dtype: torch.dtype) -> None:
    every_other = random_edges(rng, 40, 40, 300).to(dtype)[:, 1::2]
    assert_is(Graph.from_edge_index(every_other, num_nodes=40), every_other, (40, 40))


def test_number_of_nodes_is_one_more_than_the_largest() -> None:
    assert Graph.from_edge_index(torch.tensor([[0, 7], [3, 1]])).num_src == 8
    assert Graph.from_edge_index(torch.tensor([[0, 7], [3, 1]])).num_dst == 8
    assert Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long)).num_dst == 0


def test_numbers_of_nodes_may_be_numpys() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), size=(np.int64(3), np.int32(2)))
    assert (graph.num_src, graph.num_dst) == (3, 2)


def test_edge_numbers_of_64_bits(rng, bounds: Callable[..., None]) -> None:
    bounds(wide_edges=100)
    edge_index = random_edges(rng, 30, 20, 400)
    graph = Graph.from_edge_index(edge_index, size=(30, 20))
    assert graph.perm.dtype == torch.int64
    assert graph.transpose().perm.dtype == torch.int64
    assert_is(graph, edge_index, (30, 20))
    assert torch.equal(graph.transpose().edge_index(), edge_index.flip(0))


def test_wide_and_narrow_edge_numbers_mix(rng, bounds: Callable[..., None]) -> None:
    edge_index = random_edges(rng, 30, 20, 400)
    narrow = Graph.from_edge_index(edge_index, size=(30, 20))
    assert narrow.perm.dtype == torch.int32
    bounds(wide_edges=100)
    assert narrow.transpose().perm.dtype == torch.int64
    assert torch.equal(narrow.transpose().edge_index(), edge_index.flip(0))


def test_later_writes_to_the_callers_tensor_do_not_reach_the_graph(rng) -> None:
    edge_index = random_edges(rng, 20, 20, 100)
    sorted_edges = edge_index[:, edge_index[1].argsort()].contiguous()
    for given_edges in (edge_index, sorted_edges):
        kept = given_edges.clone()
        graph = Graph.from_edge_index(given_edges, num_nodes=20)
        given_edges.zero_()
        assert torch.equal(graph.edge_index(), kept)


def test_later_writes_to_csr_and_scipy_arrays_do_not_reach_the_graph() -> None:
    rowptr, col = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1], dtype=torch.int32)
    from_csr = Graph.from_csr(rowptr, col)
    rowptr.zero_()
    col.zero_()
    assert from_csr.edge_index().tolist() == [[1, 0, 1], [0, 0, 1]]
    matrix = scipy.sparse.csr_array(np.array([[0, 1], [1, 1]]))
    from_scipy = Graph.from_scipy(matrix)
    matrix.indices[:] = 0
    assert from_scipy.edge_index().tolist() == [[1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("col_dtype", [torch.int32, torch.int64], ids=["col32", "col64"])
@pytest.mark.parametrize("rowptr_dtype", [torch.int32, torch.int64], ids=["rowptr32", "rowptr64"])
def test_from_csr_keeps_rows_and_order(rowptr_dtype: torch.dtype, col_dtype: torch.dtype) -> None:
    rowptr = torch.tensor([0, 0, 3, 3, 4], dtype=rowptr_dtype)
    col = torch.tensor([5, 1, 5, 0], dtype=col_dtype)
    graph = Graph.from_csr(rowptr, col, num_src=6)
    assert graph.perm is None
    assert graph.rowptr.tolist() == [0, 0, 3, 3, 4]
    assert graph.col.tolist() == [5, 1, 5, 0]
    assert (graph.num_src, graph.num_dst) == (6, 4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_from_csr_of_every_other_entry_by_several_threads(dtype: torch.dtype) -> None:
    edges, nodes = 150_001, 70_000
    generator = torch.Generator().manual_seed(0)
    col = torch.randint(0, nodes, (2 * edges,), generator=generator).to(dtype)[::2]
    rowptr = torch.cat([torch.zeros(1), torch.full((6,), 2 * edges // 4), torch.tensor([edges])]).long()
    wide = torch.stack([rowptr, rowptr], 1)[:, 0]
    graph = Graph.from_csr(wide, col, num_src=nodes)
    assert torch.equal(graph.col, col.int())
    assert torch.equal(graph.rowptr, rowptr)
    for wrong in (-1, nodes):
        col[edges - 3] = wrong
        with pytest.raises(IndexRangeError, match=f"source {wrong} of edge {edges - 3} is not in"):
            Graph.from_csr(wide, col, num_src=nodes)


def test_from_csr_takes_as_many_sources_as_destinations() -> None:
    assert Graph.from_csr(torch.tensor([0, 1, 1]), torch.tensor([1])).num_src == 2
    assert Graph.from_csr(torch.tensor([0]), torch.empty(0, dtype=torch.long)).num_edges == 0


@pytest.mark.parametrize("kind", [scipy.sparse.coo_array, scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_from_scipy_keeps_the_order_of_the_values(rng, kind) -> None:
    matrix = kind(scipy.sparse.random_array((30, 40), density=0.2, rng=rng))
    graph = Graph.from_scipy(matrix)
    weight = torch.from_numpy(matrix.data)
    np.testing.assert_array_equal(graph.to_scipy(weight).toarray(), matrix.toarray())


@pytest.mark.parametrize("kind", ["bsr", "dia", "lil", "dok"])
def test_from_scipy_takes_other_formats(rng, kind: str) -> None:
    matrix = scipy.sparse.random_array((8, 6), density=0.3, rng=rng)
    graph = Graph.from_scipy(matrix.asformat(kind))
    dense = np.zeros((8, 6))
    source, target = graph.edge_index().numpy()
    dense[target, source] = 1
    np.testing.assert_array_equal(dense, matrix.toarray() != 0)


def test_from_scipy_keeps_duplicates_and_stored_zeros() -> None:
    matrix = scipy.sparse.coo_array(([1.0, 0.0, 2.0], ([1, 0, 1], [2, 0, 2])), shape=(2, 3))
    graph = Graph.from_scipy(matrix)
    assert graph.edge_index().tolist() == [[2, 0, 2], [1, 0, 1]]


def test_from_scipy_leaves_out_entries_beyond_the_last_row() -> None:
    matrix = scipy.sparse.csr_array(np.array([[0, 1], [1, 1]]))
    matrix.indices = np.append(matrix.indices, [7, 7]).astype(matrix.indices.dtype)
    matrix.data = np.append(matrix.data, [1, 1])
    assert Graph.from_scipy(matrix).edge_index().tolist() == [[1, 0, 1], [0, 1, 1]]


def test_degrees(rng) -> None:
    edge_index = random_edges(rng, 30, 20, 90)
    graph = Graph.from_edge_index(edge_index, size=(30, 20))
    adjacency = graph.to_scipy().toarray().astype(int)
    np.testing.assert_array_equal(graph.in_degrees.numpy(), adjacency.sum(axis=1))
    np.testing.assert_array_equal(graph.out_degrees.numpy(), adjacency.sum(axis=0))
    assert torch.equal(graph.in_degrees, graph.transpose().out_degrees)
    inverse = graph.inverse_in_degrees(torch.float64)
    np.testing.assert_array_equal(inverse.numpy(), 1 / np.maximum(adjacency.sum(axis=1), 1))
    assert graph.inverse_in_degrees(torch.float64) is inverse
    assert graph.inverse_in_degrees(torch.float32).dtype == torch.float32


def test_inverse_degrees_leave_the_degrees_alone() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    graph.inverse_in_degrees(torch.float32)
    assert graph.in_degrees.tolist() == [0, 1]


def test_transpose_is_made_once_and_counted() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    alone = graph.nbytes
    turned = graph.transpose()
    assert graph.transposed_csr is turned.csr
    assert turned.transposed_csr is graph.csr
    assert graph.nbytes > alone


def test_arrays_outlive_the_graph(rng) -> None:
    edge_index = random_edges(rng, 3000, 3000, 300_000)
    graph = Graph.from_edge_index(edge_index, num_nodes=3000)
    col, kept = graph.col, graph.col.clone()
    del graph
    gc.collect()
    Graph.from_edge_index(edge_index.flip(0), num_nodes=3000)
    assert torch.equal(col, kept)


@pytest.mark.parametrize("again", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy])
def test_copies_are_the_same_graph(rng, again) -> None:
    edge_index = random_edges(rng, 30, 20, 90)
    graph = again(Graph.from_edge_index(edge_index, size=(30, 20)))
    assert_is(graph, edge_index, (30, 20))


def test_a_graph_is_found_by_its_number_while_it_lives() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0], [0]]))
    number = graph.number
    assert by_number(number) is graph
    del graph
    gc.collect()
    with pytest.raises(ValueError, match="was freed"):
        by_number(number)


def test_graphs_made_by_several_threads_at_once(rng) -> None:
    edges = [random_edges(rng, 2000, 2000, 50_000) for _ in range(4)]

    def made(edge_index: torch.Tensor) -> Graph:
        graph = Graph.from_edge_index(edge_index, num_nodes=2000)
        graph.transpose()
        return graph

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for graph, edge_index in zip(pool.map(made, edges), edges, strict=True):
            assert_is(graph, edge_index, (2000, 2000))


def test_to_scipy_has_the_callers_order_and_ones() -> None:
    matrix = Graph.from_edge_index(torch.tensor([[2, 0, 2], [1, 0, 1]]), size=(3, 2)).to_scipy()
    assert matrix.shape == (2, 3)
    assert matrix.row.tolist() == [1, 0, 1]
    assert matrix.col.tolist() == [2, 0, 2]
    assert matrix.data.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("size", "text"),
    [((2, 2), "Graph(num_nodes=2, num_edges=1)"), ((3, 2), "Graph(num_src=3, num_dst=2, num_edges=1)")],
    ids=["square", "bipartite"],
)
def test_repr(size: tuple[int, int], text: str) -> None:
    assert repr(Graph.from_edge_index(torch.tensor([[0], [1]]), size=size)) == text


def test_a_pyg_edge_index_is_read_like_a_tensor() -> None:
    pyg = pytest.importorskip("torch_geometric")
    plain = torch.tensor([[2, 0, 1], [1, 0, 1]])
    graph = Graph.from_edge_index(pyg.EdgeIndex(plain, sparse_size=(3, 3)), num_nodes=3)
    assert_is(graph, plain, (3, 3))
    with pytest.raises(IndexRangeError):
        Graph.from_edge_index(pyg.EdgeIndex(plain), num_nodes=2)


def test_transpose_is_made_once_by_many_threads():
    edge_index = torch.randint(0, 500, (2, 20000), generator=torch.Generator().manual_seed(2))
    graph = Graph.from_edge_index(edge_index, 500)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: graph.transposed_csr, range(16)))
    assert all(csr is made[0] for csr in made)
