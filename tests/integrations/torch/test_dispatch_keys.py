"""Subscripts of every kind under the patch: read, assigned to, added to, and their errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.integrations.torch.dispatched import both, put, served, whole
from tests.integrations.torch.indices import ANY, ROWS

pytestmark = pytest.mark.filterwarnings("ignore")

# Of a tensor [ROWS, 5, 6].
I, J, K = ANY % ROWS, ANY.flip(0) % 5, (ANY * 7) % 6
M, N, L = (torch.arange(size) % 3 != 1 for size in (ROWS, 5, 6))
GRID = torch.rand(ROWS, 5, 6, generator=torch.Generator().manual_seed(1)) < 0.4
ALL = slice(None)
KEYS: dict[str, Any] = {
    "i": I,
    "i,": (I,),
    "[i]": [I],
    ":, j": (ALL, J),
    ":, :, k": (ALL, ALL, K),
    "..., k": (..., K),
    "i, ...": (I, ...),
    "i, :, :": (I, ALL, ALL),
    "..., j, :": (..., J, ALL),
    "i, j": (I, J),
    "i, j, k": (I, J, K),
    "i, :, k": (I, ALL, K),
    ":, j, k": (ALL, J, K),
    "negative": I - ROWS,
    "negative and not": torch.where(I % 2 == 0, I, I - ROWS),
    "negative, of columns": (ALL, J - 5),
    "first and last": torch.tensor([0, ROWS - 1, -1, -ROWS]),
    "int32": I.int(),
    "int16": I.short(),
    "int8": I.to(torch.int8),
    "uint8": (I % 2).to(torch.uint8),
    "uint8 of all rows": (torch.arange(ROWS) % 2).to(torch.uint8),
    "i of int32, j": (I.int(), J),
    "broadcast": (I[:5].view(5, 1), J[:3]),
    "matrix": I.view(6, 10),
    "cube": I.view(2, 5, 6),
    "a matrix turned": I.view(6, 10).t(),
    "expanded": I[:1].expand(70),
    "strided": torch.stack([I, J], 1)[:, 0],
    "one": I[:1],
    "none": I[:0],
    "none, of columns": (ALL, J[:0]),
    "a number as a tensor": torch.tensor(3),
    "a negative number as a tensor": torch.tensor(-3),
    "a number as a tensor and i": (torch.tensor(3), J),
    "i and a number": (I, 2),
    "a number and j": (2, J),
    "i and a slice": (I, slice(1, 4)),
    "a slice and j": (slice(1, 9, 2), J),
    "a slice from the end and j": (slice(-4, None), J),
    "a slice of nothing and j": (slice(3, 3), J),
    "i, None": (I, None),
    "None, i": (None, I),
    "i, None, j": (I, None, J),
    "i, 2, k": (I, 2, K),
    "a list": [1, 2, -2],
    "a list and j": ([1, 2], J[:2]),
    "numpy's": np.array([1, 5, -1]),
    "numpy's mask": np.arange(ROWS) % 2 == 0,
    "a range": range(3),
    "m": M,
    "m,": (M,),
    ":, n": (ALL, N),
    "..., l": (..., L),
    "m, ...": (M, ...),
    "m, :, k": (M, ALL, K[: int(M.sum())]),
    "m, n": (M[:, None] & N, ...),
    "m and n": (M, torch.arange(5)[: int(M.sum())].repeat(3)[: int(M.sum())]),
    "all dimensions": GRID,
    "the first two": GRID[:, :, 0],
    "the last two": (..., GRID[0]),
    "all": M | True,
    "no row": M & False,
    "m twice": (M, M[:5]),
    "m and a number": (M, 2),
    "a number and n": (2, N),
    "m, None": (M, None),
    "True": True,
    "False": False,
    "True, i": (True, I),
    "a mask that is a number": torch.tensor(True),
    "a strided mask": torch.stack([M, ~M], 1)[:, 0],
    "an expanded mask": M[:1].expand(ROWS),
    "other bytes than 1": (M.to(torch.uint8) * 2).view(torch.bool),
}
WRONG: dict[str, Any] = {
    "too large": I + 1,
    "too large, at the end": torch.cat([I, torch.tensor([ROWS])]),
    "too large, at the start": torch.cat([torch.tensor([ROWS]), I]),
    "too small": I - ROWS - 1,
    "the largest": torch.tensor([0, 2**63 - 1]),
    "the smallest": torch.tensor([0, -(2**63)]),
    "beyond 32 bits": torch.tensor([1, 2**32]),
    "int32, too large": I.int() + 1,
    "too large, of columns": (ALL, J + 1),
    "too large, of two": (I, J + 1),
    "both too large": (I + 1, J + 1),
    "floats": I.double(),
    "complex": I.to(torch.complex64),
    "no broadcast": (I[:5], J[:3]),
    "too many": (I, J, K, I),
    "two ellipses": (..., I, ..., J, K, J),
    "a mask that is too long": torch.ones(ROWS + 1, dtype=torch.bool),
    "a mask that is too short": torch.ones(ROWS - 1, dtype=torch.bool),
    "a mask of another shape": (ALL, M),
    "a mask of too many dimensions": torch.ones(ROWS, 5, 6, 1, dtype=torch.bool),
    "m and another number of j": (M, J[:3]),
    "a mask as an index": (GRID, I),
    "a word": "x",
    "a number too large": (ROWS, I),
}


def cube(dtype: torch.dtype = torch.float64) -> Tensor:
    return whole(ROWS, 5, 6).to(dtype)


@pytest.mark.parametrize("key", ["i", ":, j", "matrix", "m", ":, n", "all dimensions", "negative"])
def test_our_code_runs(key: str) -> None:
    with served() as names:
        _ = cube(torch.float32)[KEYS[key]]
    assert "x[index]" in names


@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("key", KEYS)
def test_reads(key: str, needs: bool) -> None:
    def run() -> Any:
        x = cube().requires_grad_(needs)
        out = x[KEYS[key]]
        about = out._is_view(), out.shape, out.data_ptr() == x.data_ptr()
        if needs and out.requires_grad:
            return out, about, torch.autograd.grad(out.square().sum(), x)
        return out, about

    # numpy's keys and lists make other kinds of keys, and none of them is an error, but for some pairs.
    both(run, raises=None if key in ("m twice", "m and n", "m, :, k") else False)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.complex64], ids=str
)
@pytest.mark.parametrize("key", ["i", ":, j", "i, j", "negative", "m", ":, n", "all dimensions", "broadcast"])
def test_reads_of_other_dtypes(key: str, dtype: torch.dtype) -> None:
    both(lambda: cube(dtype)[KEYS[key]])


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "turned": lambda: whole(6, 5, ROWS).permute(2, 1, 0),
    "every other row": lambda: whole(2 * ROWS, 5, 6)[::2],
    "every other column": lambda: whole(ROWS, 5, 12)[..., ::2],
    "from an offset": lambda: whole(ROWS + 3, 5, 6)[3:],
    "expanded": lambda: whole(1, 5, 6).expand(ROWS, 5, 6),
    "one number": lambda: whole(1, 1, 1).expand(ROWS, 5, 6),
    "conjugated": lambda: torch.complex(cube(), cube() + 1).conj(),
    "negated": lambda: torch.complex(cube(), cube() + 1).conj().imag,
    "windows": lambda: whole(40).as_strided((ROWS, 5, 6), (2, 1, 2)),
}


@pytest.mark.parametrize(
    "key", ["i", ":, j", "..., k", "i, j", "negative", "matrix", "m", ":, n", "the first two"]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reads_of_other_layouts(layout: str, key: str) -> None:
    def run() -> Any:
        out = LAYOUTS[layout]()[KEYS[key]]
        return out, out.is_conj(), out.is_neg(), out.is_contiguous()

    both(run)


@pytest.mark.parametrize("key", WRONG)
def test_errors_of_reads(key: str) -> None:
    both(lambda: cube()[WRONG[key]], raises=True)


@pytest.mark.parametrize("key", WRONG)
def test_errors_of_writes(key: str) -> None:
    both(lambda: put(cube(), WRONG[key], 1.0), raises=True)


@pytest.mark.parametrize("key", KEYS)
def test_assigned_numbers(key: str) -> None:
    both(
        lambda: put(cube(), KEYS[key], 7.5),
        raises=None if key in ("m twice", "m and n", "m, :, k") else False,
    )


@pytest.mark.parametrize("key", KEYS)
def test_assigned_tensors(key: str) -> None:
    def run() -> Any:
        x = cube().requires_grad_()
        # The same for entries that are the same, of which the last would win.
        value = (cube() * 3 + 1).requires_grad_()
        out = put(x.mul(1), KEYS[key], value[KEYS[key]])
        return out, out._version, torch.autograd.grad(out.square().sum(), (x, value), allow_unused=True)

    both(run, raises=None if key in ("m twice", "m and n", "m, :, k") else False)


@pytest.mark.parametrize("key", KEYS)
def test_added_to(key: str) -> None:
    def run() -> Any:
        x = cube()
        x[KEYS[key]] += 1
        return x

    both(run, raises=None if key in ("m twice", "m and n", "m, :, k") else False)


def values_of(key: Any, how: str) -> Tensor:
    found = cube()[key]
    shape = {
        "whole": found.shape,
        "a number": (),
        "a row": found.shape[-1:],
        "one row": (1, *found.shape[1:]),
    }
    return whole(*shape[how], seed=5)


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("how", ["whole", "a number", "a row", "one row"])
@pytest.mark.parametrize(
    "indices",
    [
        (I,),
        (I, J),
        (I, J, K),
        (I - ROWS,),
        (I.view(6, 10),),
        (M,),
        (GRID,),
        (I[:0],),
        (None, J),
        (I, None, K),
    ],
    ids=["i", "i, j", "i, j, k", "negative", "matrix", "m", "all", "none", ":, j", "i, :, k"],
)
def test_index_put(indices: tuple[Any, ...], how: str, accumulate: bool) -> None:
    key = tuple(ALL if each is None else each for each in indices)

    def run() -> Any:
        x = cube().requires_grad_()
        value = values_of(key, how)
        if not accumulate:
            value = torch.full_like(value, 2)  # of entries that are written to twice, the order is open
        value.requires_grad_()
        functional = torch.ops.aten.index_put(x, indices, value, accumulate)
        out = x.mul(1)
        same = torch.ops.aten.index_put_(out, indices, value, accumulate)
        grads = torch.autograd.grad((functional + out).square().sum(), (x, value))
        return functional, out, same is out, out._version, grads

    both(run, raises=None)


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize(
    "value",
    [whole(3, 5, 6), whole(60, 5, 5), whole(60, 5, 6).float(), whole(60, 5, 6).long(), torch.tensor(1j)],
    ids=["fewer", "narrower", "float32", "int64", "complex"],
)
def test_values_that_do_not_fit(value: Tensor, accumulate: bool) -> None:
    both(lambda: cube().index_put_((I,), value, accumulate), raises=None)


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_to_other_layouts(layout: str, accumulate: bool) -> None:
    def run() -> Any:
        x = LAYOUTS[layout]()
        x.index_put_((torch.arange(ROWS),), torch.ones((), dtype=x.dtype), accumulate)
        return x, x._version

    both(run, raises=None)
