"""Blocks of a matrix that are written to a file: where they land, and when they are on the disk."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop.ops.streaming.matrix_file import create


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_block_is_on_the_disk_before_memory_lets_go_of_it(
    by_columns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(tmp_path / "out.npy", 6, 3, np.dtype(np.float32), by_columns)
    happened = []
    monkeypatch.setattr(os, "fdatasync", lambda file: happened.append(("synced", file)))
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *_: happened.append(("dropped", file)))
    block = torch.arange(6.0).view(2, 3)
    with made.path.open("r+b") as file:
        made.put(file, 2, 0, block)
        assert "synced" not in dict(happened)
        made.sync(file)
        assert happened[-2:] == [("synced", file.fileno()), ("dropped", file.fileno())]
    np.testing.assert_array_equal(np.load(made.path)[2:4], block.numpy())
