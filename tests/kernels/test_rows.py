"""Rows by their numbers, against torch's own indexing."""

import pytest
import torch

from onehop.errors import IndexRangeError
from onehop.kernels.cpu.rows import add_rows, take_rows
from tests.pairs import pairwise

# Rows of fewer than 64 bytes have loops of their own.
SHORT = [(50, columns) for columns in (1, 2, 3, 4, 5, 7, 8, 9, 15)]
SHAPES = [(50,), *SHORT, (50, 16), (50, 17), (50, 2, 63), (50, 129), (50, 0), (1, 5)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool]
INDICES = [torch.int32, torch.int64]


def some(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape).mul(10).to(dtype)


def numbers(rows: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(rows, (count,), dtype=dtype)


@pairwise()
@pytest.mark.parametrize("index_dtype", INDICES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_take(shape: tuple[int, ...], dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    matrix = some(shape, dtype)
    index = numbers(shape[0], 3000, index_dtype)
    assert torch.equal(take_rows(matrix, index), matrix[index.long()])


@pytest.mark.parametrize(
    "view",
    [lambda m: m[::2], lambda m: m[:, :5], lambda m: m[:, ::2], lambda m: m.T, lambda m: m[:0]],
    ids=["every second row", "some columns", "every second column", "transposed", "no rows"],
)
def test_take_from_a_view(view: object) -> None:
    assert callable(view)
    matrix = view(torch.randn(40, 40))
    index = numbers(max(len(matrix), 1), 100 if len(matrix) else 0, torch.int32)
    assert torch.equal(take_rows(matrix, index), matrix[index.long()])


@pairwise()
@pytest.mark.parametrize("index_dtype", INDICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_add(shape: tuple[int, ...], dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    matrix, rows = some(shape, dtype), some((3000, *shape[1:]), dtype)
    index = numbers(shape[0], 3000, index_dtype)
    expected = matrix.clone().double()
    for number, row in zip(index.tolist(), rows.double(), strict=True):
        expected[number] += row
    add_rows(matrix, index, rows)
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=torch.finfo(dtype).eps * 3e4)


@pytest.mark.parametrize("index_dtype", INDICES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("columns", [1, 17])
def test_add_weighted_rows_of_sources(columns: int, dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    matrix, rows, weights = some((50, columns), dtype), some((9, columns), dtype), some((3000,), dtype)
    index, sources = numbers(50, 3000, index_dtype), numbers(9, 3000, index_dtype)
    expected = matrix.clone().double()
    for at in range(3000):
        expected[index[at]] += weights[at].double() * rows[sources[at]].double()
    add_rows(matrix, index, rows, sources, weights)
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=torch.finfo(dtype).eps * 3e5)


@pytest.mark.parametrize("index_dtype", INDICES, ids=str)
@pytest.mark.parametrize("number", [-1, 5])
@pytest.mark.parametrize("which", ["index", "sources"])
def test_no_row_is_added_that_is_none(which: str, number: int, index_dtype: torch.dtype) -> None:
    index, sources = torch.zeros(2, 3, dtype=index_dtype)
    (index if which == "index" else sources)[1] = number
    with pytest.raises(IndexRangeError, match="expected numbers of rows"):
        add_rows(torch.zeros(5, 2), index, torch.zeros(5, 2), sources)


def test_add_into_a_slice_leaves_the_rest() -> None:
    matrix = torch.zeros(10, 6)
    add_rows(matrix[2:5], torch.tensor([0, 2, 2], dtype=torch.int32), torch.ones(3, 12)[:, ::2])
    assert matrix.sum(1).tolist() == [0, 0, 6, 0, 12, 0, 0, 0, 0, 0]


def test_the_number_of_threads_does_not_show() -> None:
    index, rows = numbers(7, 5000, torch.int32), torch.randn(5000, 33)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(torch.zeros(7, 33))
        add_rows(results[-1], index, rows)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
