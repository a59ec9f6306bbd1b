"""Rows of features: those of the tensor or file, in memory that nobody else has while anybody holds it."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import onehop
from onehop import native, thresholds
from onehop.loaders.loader import HeldRows, rows_of

ROWS, WIDTH = 500, 24


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=generator)


@pytest.fixture
def numbers(generator: torch.Generator) -> Tensor:
    return torch.randint(0, ROWS, (300,), generator=generator)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def files(x: Tensor, folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", x.numpy())
    x.numpy().tofile(folder / "x.bin")
    half = x.bfloat16().view(torch.int16).numpy()
    np.concatenate([np.zeros(3, np.int16), half.ravel()]).tofile(folder / "half.bin")
    return {
        "path": folder / "x.npy",
        "text": str(folder / "x.npy"),
        "map": np.load(folder / "x.npy", mmap_mode="r"),
        "raw": onehop.RawMatrix(folder / "x.bin", (ROWS, WIDTH)),
        "bfloat16": onehop.RawMatrix(folder / "half.bin", (ROWS, WIDTH), "bfloat16", offset=6),
    }


@pytest.mark.parametrize("way", ["path", "text", "map", "raw", "bfloat16"])
@pytest.mark.parametrize("lifted", [False, True])
def test_rows_of_files(x: Tensor, numbers: Tensor, tmp_path: Path, way: str, lifted: bool) -> None:
    expected = x.bfloat16() if way == "bfloat16" else x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = HeldRows("x", files(x, tmp_path)[way])
    assert len(rows) == ROWS
    with thresholds.changed(pooled_bytes=0 if lifted else 1 << 20):
        found = rows.rows(numbers)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected[numbers])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 3), (ROWS, 2, 3), (ROWS, 0)])
def test_rows_of_tensors(numbers: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.arange(int(np.prod(shape))).view(shape).to(dtype)
    for given in (x, x.numpy(), x.t().contiguous().t() if x.dim() == 2 else x):
        found = HeldRows("x", given).rows(numbers)
        assert found.dtype == dtype
        assert torch.equal(found, x[numbers])
    assert HeldRows("x", x).rows(numbers[:0]).shape == (0, *shape[1:])


def test_what_is_handed_out_has_no_gradient_and_can_be_written(x: Tensor, numbers: Tensor) -> None:
    given = x.clone().requires_grad_()
    found = HeldRows("x", given).rows(numbers)
    assert not found.requires_grad
    found.zero_()
    assert torch.equal(given, x)


def test_memory_is_used_again_but_never_while_a_view_or_a_graph_of_autograd_holds_it() -> None:
    x = torch.arange(4096.0)[:, None].repeat(1, 256)
    rows = HeldRows("x", x)
    every = torch.arange(4096)
    native.extension.pool_clear()
    before = native.extension.pool_info()["in_use_bytes"]
    first = rows.rows(every)
    assert native.extension.pool_info()["in_use_bytes"] >= before + first.nbytes
    place = first.data_ptr()
    # A slice of a view is all that is left of the first, and the second is left in a graph of autograd alone.
    corner = first.view(-1)[-512:].view(2, 256)
    del first
    weight = torch.ones(4096, 256, requires_grad=True)
    second = rows.rows(every)
    loss = (second * weight).sum()
    held = {place, second.data_ptr()}
    del second
    others = [rows.rows(every.flip(0)) for _ in range(4)]
    assert held.isdisjoint(each.data_ptr() for each in others)
    assert len({each.data_ptr() for each in others}) == 4
    assert torch.equal(corner, x[-2:])
    loss.backward()
    assert torch.equal(weight.grad, x)
    # Nobody holds the first now: its memory is taken in the place of new memory.
    del corner, others
    mapped = native.extension.pool_info()["mapped"]
    again = [rows.rows(every) for _ in range(4)]
    assert native.extension.pool_info()["mapped"] == mapped
    assert len(again) == 4


def test_bad_input(x: Tensor, tmp_path: Path) -> None:
    rows = HeldRows("features['x']", x)
    for wrong in (-1, ROWS):
        with pytest.raises(
            onehop.IndexRangeError, match=rf"features\['x'\]: expected rows 0 to 499.* {wrong}"
        ):
            rows.rows(torch.tensor([3, wrong]))
    with pytest.raises(onehop.IndexRangeError, match="expected rows 0 to -1"):
        HeldRows("x", x[:0]).rows(torch.tensor([0]))
    with pytest.raises(onehop.ArgumentError, match="x: expected 7 rows, one for each node, got 500"):
        rows_of("x", x, 7, "node")
    with pytest.raises(onehop.ArgumentError, match=r"expected a tensor, a NumPy array, .* got list"):
        HeldRows("x", [1, 2])
    with pytest.raises(onehop.ArgumentError, match=r"expected rows .* in the CPU's memory, .* on meta"):
        HeldRows("x", x.to("meta"))
    with pytest.raises(onehop.ArgumentError, match="expected rows"):
        HeldRows("x", torch.tensor(1.0))
    with pytest.raises(FileNotFoundError):
        HeldRows("x", tmp_path / "nothing.npy")
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(onehop.ArgumentError, match=r"text\.npy cannot be mapped"):
        HeldRows("x", tmp_path / "text.npy")
    np.save(tmp_path / "cut.npy", x.numpy())
    with (tmp_path / "cut.npy").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(onehop.ArgumentError, match=r"cut\.npy cannot be mapped"):
        HeldRows("x", tmp_path / "cut.npy")
    with pytest.raises(onehop.ArgumentError, match="store it by rows"):
        HeldRows("x", onehop.RawMatrix(tmp_path / "cut.npy", (10, 10), by_columns=True))
    np.save(tmp_path / "empty.npy", np.empty((0, 3), np.float32))
    assert len(HeldRows("x", tmp_path / "empty.npy")) == 0
