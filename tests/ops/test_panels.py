"""Panels of a matrix in a file, against the matrix; and blocks of one that are written."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import onehop
from onehop import FileFormatError, Graph
from onehop.graph import pieces
from onehop.ops.streaming.matrix_file import MatrixFile, create
from onehop.ops.streaming.panels import Panels
from tests.pairs import pairwise

# A column has more than the least that is read past the page cache, and is no number of whole blocks.
ROWS = 50_001


def matrix(path: Path, width: int, order: str, dtype: str, header_ends_at: int = 0) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((ROWS, width)).astype(dtype)
    np.save(path, np.asarray(x, order=order))
    if header_ends_at:
        data = path.read_bytes()
        begin = 10 + int.from_bytes(data[8:10], "little")
        text = data[10 : begin - 1].ljust(header_ends_at - 11) + b"\n"
        path.write_bytes(data[:8] + len(text).to_bytes(2, "little") + text + data[begin:])
    return x


def panels(path: Path, piece_bytes: int, columns: int, width: int) -> np.ndarray:
    x = MatrixFile.open("x", path)
    reading, found = Panels(x, piece_bytes), []
    for first in range(0, width, columns):
        out = torch.full((x.rows, min(columns, width - first)), float("nan"), dtype=x.torch_dtype)
        reading.load(first, out)
        found.append(out.numpy())
    return np.concatenate(found, axis=1)


# Pieces of some rows and of all; both larger than what is read through the page cache, and smaller.
@pairwise(order=["C", "F"], piece_bytes=[5_000, 8_000_000, 40_000_000])
@pytest.mark.parametrize(
    ("width", "columns", "dtype", "header"),
    [(1, 1, "float32", 0), (19, 7, "float64", 0), (37, 36, "float32", 0), (5, 5, "float32", 129)],
)
def test_bits_of_the_matrix(
    tmp_path: Path, width: int, columns: int, dtype: str, header: int, order: str, piece_bytes: int
) -> None:
    x = matrix(tmp_path / "x.npy", width, order, dtype, header)
    np.testing.assert_array_equal(panels(tmp_path / "x.npy", piece_bytes, columns, width), x)


@pytest.mark.parametrize("order", ["C", "F"])
def test_past_the_page_cache_where_pieces_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    x = matrix(tmp_path / "x.npy", 19, order, "float32")
    opened = []
    found = os.open
    monkeypatch.setattr(os, "open", lambda *given, **rest: opened.append(given[1]) or found(*given, **rest))
    for piece_bytes, direct in ((100_000, False), (8_000_000, True)):
        opened.clear()
        np.testing.assert_array_equal(panels(tmp_path / "x.npy", piece_bytes, 16, 19), x)
        assert any(flags & os.O_DIRECT for flags in opened) == direct


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_system_that_refuses_direct_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    x = matrix(tmp_path / "x.npy", 19, order, "float32")

    def refused(path: str, flags: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(pieces, "_direct", refused)
    np.testing.assert_array_equal(panels(tmp_path / "x.npy", 8_000_000, 16, 19), x)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece_bytes", [5_000, 8_000_000])
def test_a_file_that_is_cut_off_while_it_is_read(tmp_path: Path, order: str, piece_bytes: int) -> None:
    matrix(tmp_path / "x.npy", 19, order, "float32")
    x = MatrixFile.open("x", tmp_path / "x.npy")
    os.truncate(x.path, x.path.stat().st_size // 3)
    with pytest.raises(FileFormatError, match=r"x\.npy: truncated at byte \d+\. Copy or write it again\."):
        Panels(x, piece_bytes).load(0, torch.empty(ROWS, 19))


def test_aggregated_past_the_page_cache(tmp_path: Path) -> None:
    """The whole way, in panels that are read in large pieces."""
    width = 33
    x = matrix(tmp_path / "x.npy", width, "F", "float32")
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, ROWS, (2, 3 * ROWS), generator=generator)
    graph = Graph.from_edge_index(edge_index, ROWS)
    stored = graph.save(tmp_path / "graph")
    out = onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "o.npy", memory=170_000_000)
    np.testing.assert_array_equal(np.load(out), onehop.aggregate(graph, torch.from_numpy(x)).numpy())


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
