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
I0, I1, I2 = ANY % ROWS, ANY.flip(0) % 5, (ANY * 7) % 6
M0, M1, M2 = (torch.arange(size) % 3 != 1 for size in (ROWS, 5, 6))
GRID = torch.rand(ROWS, 5, 6, generator=torch.Generator().manual_seed(1)) < 0.4
ALL = slice(None)
KEYS: dict[str, Any] = {
    "i": I0,
    "i,": (I0,),
    "[i]": [I0],
    ":, j": (ALL, I1),
    ":, :, k": (ALL, ALL, I2),
    "..., k": (..., I2),
    "i, ...": (I0, ...),
    "i, :, :": (I0, ALL, ALL),
    "..., j, :": (..., I1, ALL),
    "i, j": (I0, I1),
    "i, j, k": (I0, I1, I2),
    "i, :, k": (I0, ALL, I2),
    ":, j, k": (ALL, I1, I2),
    "negative": I0 - ROWS,
    "negative and not": torch.where(I0 % 2 == 0, I0, I0 - ROWS),
    "negative, of columns": (ALL, I1 - 5),
    "first and last": torch.tensor([0, ROWS - 1, -1, -ROWS]),
    "int32": I0.int(),
    "uint8 of all rows": (torch.arange(ROWS) % 2).to(torch.uint8),
    "i of int32, j": (I0.int(), I1),
    "broadcast": (I0[:5].view(5, 1), I1[:3]),
    "matrix": I0.view(6, 10),
    "cube": I0.view(2, 5, 6),
    "a matrix turned": I0.view(6, 10).t(),
    "expanded": I0[:1].expand(70),
    "strided": torch.stack([I0, I1], 1)[:, 0],
    "one": I0[:1],
    "none": I0[:0],
    "none, of columns": (ALL, I1[:0]),
    "a number as a tensor": torch.tensor(3),
    "a negative number as a tensor": torch.tensor(-3),
    "a number as a tensor and i": (torch.tensor(3), I1),
    "i and a number": (I0, 2),
    "a number and j": (2, I1),
    "i and a slice": (I0, slice(1, 4)),
    "a slice and j": (slice(1, 9, 2), I1),
    "a slice from the end and j": (slice(-4, None), I1),
    "a slice of nothing and j": (slice(3, 3), I1),
    "i, None": (I0, None),
    "None, i": (None, I0),
    "i, None, j": (I0, None, I1),
    "i, 2, k": (I0, 2, I2),
    "a list": [1, 2, -2],
    "a list and j": ([1, 2], I1[:2]),
    "numpy's": np.array([1, 5, -1]),
    "numpy's mask": np.arange(ROWS) % 2 == 0,
    "a range": range(3),
    "m": M0,
    "m,": (M0,),
    ":, n": (ALL, M1),
    "..., l": (..., M2),
    "m, ...": (M0, ...),
    "m, :, k": (M0, ALL, I2[: int(M0.sum())]),
    "m, n": (M0[:, None] & M1, ...),
    "m and n": (M0, torch.arange(5)[: int(M0.sum())].repeat(3)[: int(M0.sum())]),
    "all dimensions": GRID,
    "the first two": GRID[:, :, 0],
    "the last two": (..., GRID[0]),
    "all": M0 | True,
    "no row": M0 & False,
    "m twice": (M0, M0[:5]),
    "m and a number": (M0, 2),
    "a number and n": (2, M1),
    "m, None": (M0, None),
    "True": True,
    "False": False,
    "True, i": (True, I0),
    "a mask that is a number": torch.tensor(True),
    "a strided mask": torch.stack([M0, ~M0], 1)[:, 0],
    "an expanded mask": M0[:1].expand(ROWS),
    "other bytes than 1": (M0.to(torch.uint8) * 2).view(torch.bool),
}
WRONG: dict[str, Any] = {
    "int16": I0.short(),
    "int8": I0.to(torch.int8),
    "uint8": (I0 % 2).to(torch.uint8),
    "too large": I0 + 2,
    "too large, at the end": torch.cat([I0, torch.tensor([ROWS])]),
    "too large, at the start": torch.cat([torch.tensor([ROWS]), I0]),
    "too small": I0 - ROWS - 1,
    "the largest": torch.tensor([0, 2**63 - 1]),
    "the smallest": torch.tensor([0, -(2**63)]),
    "beyond 32 bits": torch.tensor([1, 2**32]),
    "int32, too large": I0.int() + 2,
    "too large, of columns": (ALL, I1 + 1),
    "too large, of two": (I0, I1 + 1),
    "both too large": (I0 + 2, I1 + 1),
    "floats": I0.double(),
    "complex": I0.to(torch.complex64),
    "no broadcast": (I0[:5], I1[:3]),
    "too many": (I0, I1, I2, I0),
    "two ellipses": (..., I0, ..., I1, I2, I1),
    "a mask that is too long": torch.ones(ROWS + 1, dtype=torch.bool),
    "a mask that is too short": torch.ones(ROWS - 1, dtype=torch.bool),
    "a mask of another shape": (ALL, M0),
    "a mask of too many dimensions": torch.ones(ROWS, 5, 6, 1, dtype=torch.bool),
    "m and another number of j": (M0, I1[:3]),
    "a mask as an index": (GRID, I0),
    "a word": "x",
    "a number too large": (ROWS, I0),
}


def may_fail(key: str) -> bool | None:
    """Some pairs have no common size; torch does not fill by masks of bytes."""
    return None if key in ("m twice", "m and n", "m, :, k", "uint8 of all rows") else False


def cube(dtype: torch.dtype = torch.float64) -> Tensor:
    return whole(ROWS, 5, 6).to(dtype)


ROWS_AT = ("i", "i, ...", ":, j", "..., j, :", "..., k", "matrix", "int32", "strided")
ROWS_OF = ("m", ":, n", "..., l", "a strided mask", "all", "the first two", "the last two", "all dimensions")


@pytest.mark.parametrize("key", [*ROWS_AT, *ROWS_OF])
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

    both(run, raises=may_fail(key))


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
        raises=may_fail(key),
    )


@pytest.mark.parametrize("key", KEYS)
def test_assigned_tensors(key: str) -> None:
    def run() -> Any:
        x = cube().requires_grad_()
        # The same for entries that are the same, of which the last would win.
        value = (cube() * 3 + 1).requires_grad_()
        out = put(x.mul(1), KEYS[key], value[KEYS[key]])
        return out, out._version, torch.autograd.grad(out.square().sum(), (x, value), allow_unused=True)

    both(run, raises=may_fail(key))


@pytest.mark.parametrize("key", KEYS)
def test_added_to(key: str) -> None:
    def run() -> Any:
        x = cube()
        x[KEYS[key]] += 1
        return x

    both(run, raises=may_fail(key))


def values_of(key: Any, how: str) -> Tensor:
    found = cube()[key]
    shape = {
        "whole": found.shape,
        "a number": (),
        "a row": found.shape[-1:],
        "one row": (1, *found.shape[1:]),
    }
    return whole(*shape[how], seed=5)


PUT: dict[str, tuple[Any, ...]] = {
    "i": (I0,),
    "i, j": (I0, I1),
    "i, j, k": (I0, I1, I2),
    "negative": (I0 - ROWS,),
    "matrix": (I0.view(6, 10),),
    "m": (M0,),
    "all dimensions": (GRID,),
    "none": (I0[:0],),
    ":, j": (None, I1),
    "i, :, k": (I0, None, I2),
}


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("how", ["whole", "a number", "a row", "one row"])
@pytest.mark.parametrize("key", PUT)
def test_index_put(key: str, how: str, accumulate: bool) -> None:
    indices = PUT[key]

    def run() -> Any:
        x = cube().requires_grad_()
        value = values_of(tuple(ALL if each is None else each for each in indices), how)
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
    both(lambda: cube().index_put_((I0,), value, accumulate), raises=None)


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_to_other_layouts(layout: str, accumulate: bool) -> None:
    def run() -> Any:
        x = LAYOUTS[layout]()
        x.index_put_((torch.arange(ROWS),), torch.ones((), dtype=x.dtype), accumulate)
        return x, x._version

    both(run, raises=None)
