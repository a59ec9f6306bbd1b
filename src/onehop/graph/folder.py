"""Compressed sparse rows in a folder: reading piece by piece, checks, and writing.

A folder contains ``meta.json``, ``checksums.json``, ``rowptr.npy`` ([num_dst + 1], int64) and ``col.npy``
([E], int32), where the sources of destination i are ``col[rowptr[i]:rowptr[i + 1]]``, as in
:class:`onehop.Graph`. The edges are in the order of ``col``.
"""

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, FileFormatError, IndexRangeError
from onehop.graph import checksums
from onehop.graph.array_file import ArrayFile
from onehop.graph.build import MOST_NODES
from onehop.graph.pieces import PieceReader
from onehop.storage import writing

# Number of entries of col that are processed together.
PIECE = 1 << 22
_FORMAT = "onehop stored graph 1"
_META, _ROWPTR, _COL = "meta.json", "rowptr.npy", "col.npy"
# Number of entries of rowptr that are in memory at a time.
_ROWPTR_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a graph on disk; base class of :class:`onehop.StoredGraph`, which users get."""

    folder: Path
    num_src: int
    num_dst: int
    num_edges: int
    identity: str

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open the graph in a folder from :func:`onehop.graph.stored.write` or :meth:`onehop.Graph.save`.

        Raises:
            FileFormatError: The folder does not contain a stored graph, or a file in it is truncated.
            FileNotFoundError: There is no such folder.
        """
        path = Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder; Graph.save() writes one.")
        try:
            meta = json.loads((path / _META).read_text())
            stored = cls(path, int(meta["num_src"]), int(meta["num_dst"]), int(meta["num_edges"]), "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                f"{path}: expected a folder written by Graph.save(); its {_META} cannot be used ({error})."
            ) from error
        if meta.get("format") != _FORMAT:
            raise FileFormatError(f"{path / _META}: expected {_FORMAT!r}, got {meta.get('format')!r}.")
        rowptr, col = stored.rowptr, stored.col
        for file, array, kind, count in (
            (_ROWPTR, rowptr, np.int64, stored.num_dst + 1),
            (_COL, col, np.int32, stored.num_edges),
        ):
            if array.dtype != kind or array.shape != (count,):
                raise FileFormatError(
                    f"{path / file}: expected [{count}] {np.dtype(kind)}, got {list(array.shape)} "
                    f"{array.dtype}. Copy or store the graph again."
                )
        if rowptr[0] != 0 or rowptr[-1] != stored.num_edges:
            raise FileFormatError(f"{path / _ROWPTR}: expected entries from 0 to {stored.num_edges}.")
        stamps = [(path / name).stat() for name in (_META, _ROWPTR, _COL)]
        identity = ";".join(f"{stamp.st_size},{stamp.st_mtime_ns}" for stamp in stamps)
        return cls(path, stored.num_src, stored.num_dst, stored.num_edges, identity)

    @property
    def rowptr(self) -> np.ndarray:
        """The bounds of the rows, [num_dst + 1], int64, memory-mapped."""
        return _mapped(self.folder / _ROWPTR)

    @property
    def col(self) -> np.ndarray:
        """The source of every edge, [E], int32, memory-mapped."""
        return _mapped(self.folder / _COL)

    @property
    def rowptr_file(self) -> Path:
        """The file of ``rowptr``."""
        return self.folder / _ROWPTR

    @property
    def col_file(self) -> Path:
        """The file of ``col``."""
        return self.folder / _COL

    def verify(self) -> None:
        """Read all files once, and compare each block of 4 MiB with its checksum.

        Raises:
            FileFormatError: A block has other contents than were written, or an earlier release stored the
                graph without checksums.
        """
        checksums.verify(self.folder)

    def blocks(self, rows: int = PIECE, edges: int = PIECE) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yields blocks of rows: the first row's number, the degrees, [rows], and the sources, [edges].

        Args:
            rows: The maximal number of rows, one or more.
            edges: The maximal number of edges, unless one row has more.

        Raises:
            FileFormatError: ``rowptr`` does not ascend, or a source is outside the graph.
        """
        col = self.col
        for begin, pointers in self.row_blocks(rows, edges):
            sources = torch.from_numpy(np.array(col[pointers[0] : pointers[-1]]))
            if len(sources) and not 0 <= int(sources.min()) <= int(sources.max()) < self.num_src:
                raise FileFormatError(
                    f"{self.col_file}: a source is not in [0, {self.num_src}). Store the graph again."
                )
            yield begin, torch.from_numpy(np.diff(pointers)), sources

    def row_blocks(self, rows: int, edges: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields blocks of rows without sources: the first row's number, and their ``rowptr``, [rows + 1].

        Args:
            rows: The maximal number of rows, one or more.
            edges: The maximal number of edges, unless one row has more.

        Raises:
            FileFormatError: ``rowptr`` does not ascend, or its file is truncated.
        """
        offset = self.rowptr_file.stat().st_size - 8 * (self.num_dst + 1)
        with PieceReader(self.rowptr_file) as reader:
            for row in range(0, self.num_dst, min(rows, _ROWPTR_PIECE)):
                count = min(rows, _ROWPTR_PIECE, self.num_dst - row)
                pointers = np.empty(count + 1, dtype=np.int64)
                reader.read(offset + 8 * row, pointers.nbytes, pointers.view(np.uint8), 0)
                if (np.diff(pointers) < 0).any() or not 0 <= pointers[0] <= pointers[-1] <= self.num_edges:
                    raise FileFormatError(
                        f"{self.rowptr_file}: expected entries that ascend to {self.num_edges}; store the "
                        "graph again."
                    )
                begin = 0
                while begin < count:
                    end = int(np.searchsorted(pointers, pointers[begin] + edges, side="right")) - 1
                    end = min(max(end, begin + 1), count)
                    yield row + begin, pointers[begin : end + 1]
                    begin = end

    def __repr__(self) -> str:
        nodes = f"num_src={self.num_src}, num_dst={self.num_dst}"
        return f"StoredGraph({nodes}, num_edges={self.num_edges}, folder={str(self.folder)!r})"


def blocks_of(rowptr: Tensor, col: Tensor, step: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields blocks of ``step`` rows of arrays in memory; see :meth:`StoredRows.blocks`."""
    rows, degrees = len(rowptr) - 1, rowptr.diff()
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        yield begin, degrees[begin:end], col[int(rowptr[begin]) : int(rowptr[end])]


def write(folder: str | os.PathLike[str], num_src: int, blocks: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Write a graph to a folder; see :func:`onehop.graph.stored.write`."""
    if not 0 <= num_src <= MOST_NODES:
        raise ArgumentError(f"num_src: expected 0 to {MOST_NODES}, got {num_src}.")
    with appearing(folder) as beside, Rows(beside) as rows:
        count = 0
        rows.pointers.put(np.zeros(1))
        for degrees, col in blocks:
            _check_block(degrees, col, num_src)
            rows.pointers.put((degrees.long().cumsum(0) + rows.sources.count).numpy())
            rows.sources.put(col.int().numpy())
            count += len(degrees)
        rows.finish(num_src, count)


@contextlib.contextmanager
def appearing(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a folder to write to, which gets its final name when the block ends; on an error it is removed.

    Raises:
        ArgumentError: The name exists already.
        StorageError: The disk is full, or the place is not writable.
    """
    goal = Path(folder)
    with writing("folder", goal):
        exists = goal.exists()
    if exists:
        raise ArgumentError(f"folder: {goal} exists; remove it or give another name.")
    # The name is unique, even if others write the same graph at the same time, on any machine.
    beside = goal.with_name(f"{goal.name}.{uuid.uuid4().hex}.tmp")
    try:
        with writing("folder", beside):
            beside.mkdir(parents=True)
        yield beside
        with writing("folder", goal):
            _appear(beside, goal)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


class Rows:
    """The files of a graph that is being written, in an existing folder without these files.

    Attributes:
        pointers: The file of ``rowptr``; it must get one entry more than there are rows.
        sources: The file of ``col``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with ExitStack() as stack:
            self.pointers = stack.enter_context(ArrayFile(folder / _ROWPTR, np.int64))
            self.sources = stack.enter_context(ArrayFile(folder / _COL, np.int32))
            self._files = stack.pop_all()

    def finish(self, num_src: int, num_dst: int, more: Mapping[str, ArrayFile] | None = None) -> None:
        """Write the lengths, checksums and metadata; ``more`` are other finished files in the folder.

        Raises a StorageError if the disk is full.
        """
        self.pointers.finish()
        self.sources.finish()
        files = {_ROWPTR: self.pointers, _COL: self.sources, **(more or {})}
        checksums.write(self._folder, {name: file.checksums.blocks for name, file in files.items()})
        edges = self.sources.count
        meta = {"format": _FORMAT, "num_src": num_src, "num_dst": num_dst, "num_edges": edges}
        with writing("folder", self._folder):
            (self._folder / _META).write_text(json.dumps(meta, indent=2) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()


def _appear(beside: Path, goal: Path) -> None:
    """Rename the folder to its final name, unless the name exists now."""
    try:
        beside.rename(goal)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise ArgumentError(
            f"folder: {goal} was created by another process in the meantime; remove it or give another name."
        ) from error


def _check_block(degrees: Tensor, col: Tensor, num_src: int) -> None:
    if degrees.dim() != 1 or col.dim() != 1 or (len(degrees) and int(degrees.min()) < 0):
        raise ArgumentError("blocks: expected numbers of edges [rows], zero or more, and sources [edges].")
    if int(degrees.sum()) != len(col):
        raise ArgumentError(
            f"blocks: the rows of a block have {int(degrees.sum())} edges, and it has {len(col)} sources."
        )
    if len(col) and not 0 <= int(col.min()) <= int(col.max()) < num_src:
        raise IndexRangeError(f"blocks: expected sources in [0, {num_src}).")


def _mapped(file: Path) -> np.ndarray:
    try:
        if not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file; was the folder copied as a whole?")
        # An empty array cannot be mapped.
        empty = file.stat().st_size <= 128
        mapped: np.ndarray = np.load(file, mmap_mode=None if empty else "r", allow_pickle=False)
        return mapped
    except (ValueError, EOFError) as error:
        raise FileFormatError(f"{file}: not a whole .npy file ({error}). Copy or write it again.") from error
