"""A graph that stays on disk: compressed sparse rows in two files, read piece by piece.

A folder holds ``meta.json``, ``rowptr.npy`` ([num_dst + 1], int64) and ``col.npy`` ([E], int32), where the
sources of destination i are ``col[rowptr[i]:rowptr[i + 1]]``, as in :class:`onehop.Graph`. The edge order is
that of ``col``.
"""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, FileFormatError, IndexRangeError
from onehop.graph.build import MOST_NODES
from onehop.graph.graph import Graph
from onehop.graph.pieces import PieceReader
from onehop.storage import writing

_FORMAT = "onehop stored graph 1"
_META, _ROWPTR, _COL = "meta.json", "rowptr.npy", "col.npy"
# Number of entries of rowptr or col that are processed together, and of rowptr that are in memory.
_PIECE = 1 << 22
_ROWPTR_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph in a folder. Only the part that is being read is in memory.

    Attributes:
        folder: Its path.
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges.
        identity: Identifies this stored graph.
    """

    folder: Path
    num_src: int
    num_dst: int
    num_edges: int
    identity: str

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "StoredGraph":
        """The graph in a folder that :func:`write` or :meth:`onehop.Graph.save` made.

        Raises:
            FileFormatError: It is not a stored graph, or a file in it is truncated.
            FileNotFoundError: There is no such folder.
        """
        path = Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: there is no such folder; Graph.save() writes one.")
        try:
            meta = json.loads((path / _META).read_text())
            found = cls(path, int(meta["num_src"]), int(meta["num_dst"]), int(meta["num_edges"]), "")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(
                f"{path}: expected a folder written by Graph.save(); its {_META} cannot be used ({error})."
            ) from error
        if meta.get("format") != _FORMAT:
            raise FileFormatError(f"{path / _META}: expected {_FORMAT!r}, got {meta.get('format')!r}.")
        rowptr, col = found.rowptr, found.col
        for file, array, kind, count in (
            (_ROWPTR, rowptr, np.int64, found.num_dst + 1),
            (_COL, col, np.int32, found.num_edges),
        ):
            if array.dtype != kind or array.shape != (count,):
                raise FileFormatError(
                    f"{path / file}: expected [{count}] {np.dtype(kind)}, got {list(array.shape)} "
                    f"{array.dtype}. Copy or store the graph again."
                )
        if rowptr[0] != 0 or rowptr[-1] != found.num_edges:
            raise FileFormatError(f"{path / _ROWPTR}: expected entries from 0 to {found.num_edges}.")
        stamps = [(path / name).stat() for name in (_META, _ROWPTR, _COL)]
        identity = ";".join(f"{stamp.st_size},{stamp.st_mtime_ns}" for stamp in stamps)
        return cls(path, found.num_src, found.num_dst, found.num_edges, identity)

    @property
    def rowptr(self) -> np.ndarray:
        """The row pointers, [num_dst + 1], int64, memory-mapped."""
        return _mapped(self.folder / _ROWPTR)

    @property
    def col(self) -> np.ndarray:
        """The sources, [E], int32, memory-mapped."""
        return _mapped(self.folder / _COL)

    @property
    def rowptr_file(self) -> Path:
        """The file of ``rowptr``."""
        return self.folder / _ROWPTR

    @property
    def col_file(self) -> Path:
        """The file of ``col``."""
        return self.folder / _COL

    def blocks(self, rows: int = _PIECE, edges: int = _PIECE) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Consecutive rows: the first one's number, their numbers of edges [rows], and their sources [edges].

        Args:
            rows: Most rows, one or more.
            edges: Most edges, unless one row has more.

        Raises:
            FileFormatError: ``rowptr`` does not ascend, or a source lies outside the graph.
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
        """Consecutive rows without their sources: the first one's number, and ``rowptr`` of them [rows + 1].

        Args:
            rows: Most rows, one or more.
            edges: Most edges, unless one row has more.

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

    def load(self) -> Graph:
        """The whole graph, in memory.

        Raises:
            ArgumentError: ``rowptr`` does not ascend.
            IndexRangeError: A source lies outside the graph.
        """
        rowptr, col = (torch.from_numpy(np.array(array)) for array in (self.rowptr, self.col))
        return Graph.from_csr(rowptr, col, self.num_src)

    def __repr__(self) -> str:
        """Nodes, edges and folder."""
        nodes = f"num_src={self.num_src}, num_dst={self.num_dst}"
        return f"StoredGraph({nodes}, num_edges={self.num_edges}, folder={str(self.folder)!r})"


def write(
    folder: str | os.PathLike[str], num_src: int, blocks: Iterable[tuple[Tensor, Tensor]]
) -> StoredGraph:
    """Stores a graph that is given in blocks of rows, of which one at a time is in memory.

    The folder appears only when it is complete.

    Args:
        folder: The path; must not exist.
        num_src: Number of sources.
        blocks: For consecutive destinations: the number of edges of each [rows], and their sources [edges],
            integers, on the CPU.

    Raises:
        ArgumentError: The folder exists, or a block contradicts itself.
        IndexRangeError: A source is negative or too large.
        StorageError: The disk is full, or not writable.
    """
    goal = Path(folder)
    with writing("folder", goal):
        exists = goal.exists()
    if exists:
        raise ArgumentError(f"folder: {goal} exists; remove it or give another name.")
    if not 0 <= num_src <= MOST_NODES:
        raise ArgumentError(f"num_src: expected 0 to {MOST_NODES}, got {num_src}.")
    # Unique to this call, whoever else writes the same graph at the same time, on any machine.
    beside = goal.with_name(f"{goal.name}.{uuid.uuid4().hex}.tmp")
    try:
        with writing("folder", beside):
            beside.mkdir(parents=True)
        meta = _write_rows(beside, num_src, blocks)
        with writing("folder", goal):
            (beside / _META).write_text(json.dumps(meta, indent=2) + "\n")
            _appear(beside, goal)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return StoredGraph.open(goal)


def _write_rows(folder: Path, num_src: int, blocks: Iterable[tuple[Tensor, Tensor]]) -> dict[str, str | int]:
    """Writes both arrays; returns their metadata."""
    rows = edges = 0
    with ExitStack() as stack:
        # Unbuffered: a buffer would report a full disk only when the file is closed.
        pointers, sources = (
            stack.enter_context((folder / name).open("wb", buffering=0)) for name in (_ROWPTR, _COL)
        )
        for file, kind in ((pointers, np.int64), (sources, np.int32)):
            _put(file, _header(0, kind))
        _put(pointers, bytes(8))
        for degrees, col in blocks:
            _check_block(degrees, col, num_src)
            _put(pointers, _bytes(degrees.long().cumsum(0) + edges))
            _put(sources, _bytes(col.int()))
            rows, edges = rows + len(degrees), edges + len(col)
        for file, kind, count in ((pointers, np.int64, rows + 1), (sources, np.int32, edges)):
            file.seek(0)
            _put(file, _header(count, kind))
    return {"format": _FORMAT, "num_src": num_src, "num_dst": rows, "num_edges": edges}


def _put(file: FileIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    with writing("folder", Path(str(file.name)), len(view)):
        while view:
            view = view[file.write(view) :]


def _bytes(values: Tensor) -> memoryview:
    flat: np.ndarray = np.ascontiguousarray(values.numpy()).view(np.uint8)
    return flat.data


def _appear(beside: Path, goal: Path) -> None:
    """Renames the folder to its final name, unless that exists by now."""
    try:
        beside.rename(goal)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise ArgumentError(
            f"folder: {goal} was created by another process in the meantime; remove it or give another name."
        ) from error


def save(graph: Graph, folder: str | os.PathLike[str]) -> StoredGraph:
    """Stores a graph; see :meth:`onehop.Graph.save`."""
    degrees = graph.in_degrees

    def blocks() -> Iterable[tuple[Tensor, Tensor]]:
        step = max(_PIECE * max(graph.num_dst, 1) // max(graph.num_edges, 1), 1)
        for begin in range(0, graph.num_dst, step):
            end = min(begin + step, graph.num_dst)
            yield degrees[begin:end], graph.col[int(graph.rowptr[begin]) : int(graph.rowptr[end])]

    return write(folder, graph.num_src, blocks())


def _check_block(degrees: Tensor, col: Tensor, num_src: int) -> None:
    if degrees.dim() != 1 or col.dim() != 1 or (len(degrees) and int(degrees.min()) < 0):
        raise ArgumentError("blocks: expected numbers of edges [rows], zero or more, and sources [edges].")
    if int(degrees.sum()) != len(col):
        raise ArgumentError(
            f"blocks: the rows of a block have {int(degrees.sum())} edges, and it has {len(col)} sources."
        )
    if len(col) and not 0 <= int(col.min()) <= int(col.max()) < num_src:
        raise IndexRangeError(f"blocks: expected sources in [0, {num_src}).")


def _header(count: int, kind: type) -> bytes:
    """A .npy header of the same length for every count, so that it can be rewritten at the end."""
    text = f"{{'descr': '{np.dtype(kind).str}', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


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
