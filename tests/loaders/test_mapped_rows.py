"""Rows of a mapped file that is not in memory: the same rows, of pages that are requested together."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from onehop.kernels.cpu.rows import copy_mapped_rows, copy_rows
from onehop.loaders.loader import HeldRows

ROWS = 3000


def evicted(file: Path) -> None:
    """Empties the page cache of the file, where its file system has one."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# Less than a page, more than one, and a number without a call for each.
@pytest.mark.parametrize("columns", [1, 2, 3, 250, 1024, 1500])
@pytest.mark.parametrize("count", [1, 511, 512, 513, 1700])
def test_rows_of_a_file_that_is_on_disk(tmp_path: Path, columns: int, count: int) -> None:
    file = tmp_path / "x.npy"
    x = torch.arange(ROWS * columns, dtype=torch.float32).view(ROWS, columns)
    np.save(file, x.numpy())
    rows = HeldRows("x", file)
    numbers = torch.randint(0, ROWS, (count,), generator=torch.Generator().manual_seed(0))
    numbers[0], numbers[-1] = 0, ROWS - 1
    evicted(file)
    assert torch.equal(rows.rows(numbers), x[numbers])
    # And once more, when the pages are there.
    assert torch.equal(rows.rows(numbers), x[numbers])


def test_numbers_in_32_bits_and_rows_with_gaps_between_them() -> None:
    x = torch.arange(ROWS * 40.0).view(ROWS, 40)
    numbers = torch.arange(ROWS).flip(0)
    for matrix in (x, x[:, :30], x[:, ::2]):
        for index in (numbers, numbers.int()):
            out = torch.empty(ROWS, matrix.size(1))
            copy_mapped_rows(matrix, index, out)
            assert torch.equal(out, matrix.flip(0))


def waits(file: Path, copy: object) -> int:
    """How often a copy of rows, each on a page of its own, waits for the disk."""
    evicted(file)
    matrix: Tensor = HeldRows("x", file)._matrix
    numbers = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    out = torch.empty(matrix.shape)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    copy(matrix, numbers, out)  # type: ignore[operator]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    assert torch.equal(out, matrix[numbers])
    return after - before


def test_pages_are_requested_together(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones((ROWS, 1024), np.float32))
    alone = waits(file, copy_rows)
    if alone < ROWS // 2:
        pytest.skip("the file system of the temporary folder keeps files in memory")
    assert waits(file, copy_mapped_rows) < ROWS // 10
