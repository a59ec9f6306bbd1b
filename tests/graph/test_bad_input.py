"""Bad input to graphs: a clear error, and never a crash."""

import numpy as np
import pytest
import scipy.sparse
import torch

from onehop import ArgumentError, Graph, IndexRangeError, OnehopError

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize(
    ("edges", "size", "message"),
    [
        ([[0, 3], [1, 2]], (3, 3), r"source 3 of edge 1 is not in \[0, 3\)"),
        ([[0, 1], [1, 3]], (3, 3), r"destination 3 of edge 1 is not in \[0, 3\)"),
        ([[0, -1], [1, 2]], (3, 3), r"source -1 of edge 1"),
        ([[0, 1], [-5, 2]], (3, 3), r"destination -5 of edge 0"),
        ([[0], [-1]], (3, 3), r"destination -1 of edge 0"),
        ([[0, 1, 2], [-1, -1, 2]], (3, 3), r"destination -1 of edge 0"),
        ([[2, 1], [0, 1]], (2, 3), r"source 2 of edge 0 is not in \[0, 2\)"),
        ([[0, 1], [0, 2]], (3, 2), r"destination 2 of edge 1 is not in \[0, 2\)"),
        ([[0], [0]], (0, 0), r"is not in \[0, 0\)"),
        ([[2**31 - 1], [0]], (3, 3), r"source 2147483647 of edge 0"),
        ([[-(2**31)], [0]], (3, 3), r"source -2147483648 of edge 0"),
    ],
)
def test_a_node_number_out_of_range_is_named(edges, size, message: str, dtype: torch.dtype) -> None:
    with pytest.raises(IndexRangeError, match=message):
        Graph.from_edge_index(torch.tensor(edges, dtype=dtype), size=size)


@pytest.mark.parametrize("number", [2**31, 2**32, 2**63 - 1, -(2**63)])
def test_numbers_that_do_not_fit_32_bits(number: int) -> None:
    with pytest.raises(IndexRangeError, match=str(number)):
        Graph.from_edge_index(torch.tensor([[0], [number]]), num_nodes=4)


def test_the_first_bad_edge_of_many_is_named() -> None:
    torch.set_num_threads(4)
    edge_index = torch.zeros(2, 200_000, dtype=torch.long)
    edge_index[0, [70_000, 150_000]] = 5
    with pytest.raises(IndexRangeError, match="edge 70000 "):
        Graph.from_edge_index(edge_index, num_nodes=5)


@pytest.mark.parametrize("count", [1, 200_000])
def test_destinations_that_ascend_from_minus_one(count: int) -> None:
    torch.set_num_threads(4)
    targets = torch.arange(-1, count)
    with pytest.raises(IndexRangeError, match="destination -1 of edge 0"):
        Graph.from_edge_index(torch.stack([torch.zeros_like(targets), targets]), num_nodes=count)


def test_a_negative_number_without_num_nodes() -> None:
    with pytest.raises(IndexRangeError, match="-1"):
        Graph.from_edge_index(torch.tensor([[-1], [-1]]))


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0], [1]], "expected a tensor"),
        (None, "expected a tensor"),
        (np.zeros((2, 3), dtype=np.int64), "expected a tensor"),
        (torch.tensor([0, 1]), r"shape \[2, E\], got torch.int64 of shape \[2\] on cpu"),
        (torch.zeros(3, 2, dtype=torch.long), r"shape \[2, E\]"),
        (torch.zeros(2, 2, 2, dtype=torch.long), r"shape \[2, E\]"),
        (torch.tensor(3), r"shape \[2, E\]"),
        (torch.eye(2).long().to_sparse(), "dense"),
        (EDGES.float(), r"int32 or int64, got torch.float32; convert"),
        (EDGES.short(), "int32 or int64"),
        (EDGES.byte(), "int32 or int64"),
        (EDGES.bool(), "int32 or int64"),
        (EDGES.to("meta"), "expected a tensor with data, got one on meta"),
    ],
    ids=str,
)
def test_a_wrong_edge_index(edge_index, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Graph.from_edge_index(edge_index)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_nodes": 3, "size": (3, 3)}, "one of them"),
        ({"num_nodes": -1}, "zero or more"),
        ({"num_nodes": 2.5}, "num_nodes: expected an integer of 0 or more"),
        ({"num_nodes": "3"}, "num_nodes: expected an integer of 0 or more"),
        ({"num_nodes": 2**31}, "32 bits"),
        ({"num_nodes": 2**70}, "32 bits"),
        ({"size": (3, -2)}, "size: expected a number of nodes"),
        ({"size": (3, None)}, "size: expected an integer of 0 or more"),
        ({"size": (3, 2**31)}, "size: 2147483648 nodes"),
        ({"size": 3}, r"size: expected \(num_src, num_dst\)"),
        ({"size": (3,)}, r"size: expected \(num_src, num_dst\)"),
        ({"size": (3, 3, 3)}, r"size: expected \(num_src, num_dst\)"),
    ],
    ids=str,
)
def test_wrong_numbers_of_nodes(arguments, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Graph.from_edge_index(EDGES, **arguments)


def test_the_largest_number_asks_for_too_many_nodes() -> None:
    with pytest.raises(ArgumentError, match="32 bits"):
        Graph.from_edge_index(torch.tensor([[2**62], [0]]))


def test_a_fake_tensor_has_no_edges() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with (
        FakeTensorMode(),
        pytest.raises(ArgumentError, match="expected a tensor with data, got a FakeTensor"),
    ):
        Graph.from_edge_index(torch.zeros(2, 3, dtype=torch.long), num_nodes=3)


COL = torch.tensor([0, 1, 0])


@pytest.mark.parametrize(
    ("rowptr", "col", "message"),
    [
        (torch.tensor([], dtype=torch.long), COL, "at least one entry"),
        (torch.tensor([0, 3, 2, 3]), COL, "ascend"),
        (torch.tensor([1, 2, 3]), COL, "ascend"),
        (torch.tensor([0, 2]), COL, "ascend from 0 to the 3 entries"),
        (torch.tensor([0, 4]), COL, "ascend"),
        (torch.tensor([0, 2**31 - 1, -2, 0, 3], dtype=torch.int32), COL, "ascend"),
        (torch.tensor([0, 2**62, -(2**62), 3]), COL, "ascend"),
        (torch.tensor([0.0, 3.0]), COL, "rowptr: expected a one-dimensional int32 or int64"),
        (torch.tensor([[0, 3]]), COL, "rowptr: expected a one-dimensional"),
        (torch.tensor([0, 3]), COL.float(), "col: expected a one-dimensional"),
        (torch.tensor([0, 3]), COL.to("meta"), "col: expected a one-dimensional"),
        (torch.tensor([0, 3]), COL.to_sparse(), "col: expected a one-dimensional"),
        ([0, 3], COL, "rowptr: expected a tensor"),
        (torch.tensor([0, 3]), [0, 1, 0], "col: expected a tensor"),
    ],
    ids=str,
)
def test_wrong_compressed_rows(rowptr, col, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Graph.from_csr(rowptr, col, num_src=2)


def test_a_source_out_of_range_in_compressed_rows() -> None:
    with pytest.raises(IndexRangeError, match="source 1 of edge 1"):
        Graph.from_csr(torch.tensor([0, 3]), COL)
    with pytest.raises(ArgumentError, match="num_src"):
        Graph.from_csr(torch.tensor([0, 3]), COL, num_src=-4)


@pytest.mark.parametrize(
    "matrix", [np.eye(3), [[0]], torch.eye(2), None, scipy.sparse.coo_array([1, 0, 2])], ids=type
)
def test_from_scipy_wants_a_sparse_matrix(matrix) -> None:
    with pytest.raises(ArgumentError, match="two-dimensional SciPy sparse"):
        Graph.from_scipy(matrix)


@pytest.mark.parametrize("pointer", [[0, 2, 1, 3], [0, 1, 2, 99], [1, 2, 2, 3], [-1, 1, 2, 3]], ids=str)
def test_scipy_pointers_that_were_damaged_later(pointer: list[int]) -> None:
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.indptr = np.array(pointer, dtype=np.int32)
    with pytest.raises(ArgumentError, match="indptr must ascend"):
        Graph.from_scipy(matrix)


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_scipy_indices_that_were_damaged_later(kind, index: int) -> None:
    matrix = kind(np.eye(3))
    matrix.indices[1] = index
    with pytest.raises(IndexRangeError, match=f"{index} of edge 1"):
        Graph.from_scipy(matrix)


def test_weights_for_scipy_have_one_entry_an_edge() -> None:
    with pytest.raises(ArgumentError, match=r"weight: expected shape \[3\], got \[2\]"):
        Graph.from_edge_index(EDGES).to_scipy(torch.ones(2))


def test_every_error_can_be_caught_in_one_place() -> None:
    with pytest.raises(OnehopError):
        Graph.from_edge_index(torch.tensor([[5], [0]]), num_nodes=2)
    with pytest.raises(IndexError):
        Graph.from_edge_index(torch.tensor([[5], [0]]), num_nodes=2)
    with pytest.raises(ValueError, match="edge_index"):
        Graph.from_edge_index(torch.tensor([[5], [0]]), num_nodes=2)
