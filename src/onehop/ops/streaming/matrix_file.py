"""A matrix in a .npy file, read and written by pieces without mapping it."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, FileFormatError, StorageError

_DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
# Pieces of a column-major file are turned round in blocks that the second cache holds.
_TURN_ROWS = 1 << 14
_MOST_STREAMS = 64
# What was read is forgotten after so many pieces.
_FORGET_PIECES = 8


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """Where the numbers of a matrix are.

    Attributes:
        path: The file.
        rows: Number of rows.
        columns: Number of columns.
        dtype: float32 or float64.
        by_columns: Whether the numbers of a column lie one after the other (NumPy's Fortran order).
        offset: Of the first number, in bytes.
    """

    path: Path
    rows: int
    columns: int
    dtype: np.dtype
    by_columns: bool
    offset: int

    @classmethod
    def open(cls, name: str, given: object) -> "MatrixFile":
        """The matrix in a file, given as its path or as a memory-mapped array of all of it.

        Raises:
            ArgumentError: It is neither, or the array is a part of its file.
            FileFormatError: The file holds no matrix of floats, or is truncated.
            FileNotFoundError: There is no such file.
        """
        if isinstance(given, np.memmap):
            given = _whole_file(name, given)
        if not isinstance(given, (str, os.PathLike)):
            raise ArgumentError(
                f"{name}: expected the path of a .npy file or a memory-mapped one, got "
                f"{type(given).__name__}; write it with numpy.save."
            )
        path = Path(given)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file.")
        with path.open("rb") as file:
            try:
                version = np.lib.format.read_magic(file)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }
                shape, fortran, dtype = read[version](file)
            except (ValueError, KeyError) as error:
                raise FileFormatError(
                    f"{path}: not a .npy file ({error}). Write it with numpy.save."
                ) from error
            offset = file.tell()
        if dtype not in _DTYPES or len(shape) not in (1, 2):
            raise FileFormatError(
                f"{path}: expected a matrix of float32 or float64, got {dtype} of shape {list(shape)}."
            )
        rows, columns = shape if len(shape) == 2 else (shape[0], 1)
        wanted, found = offset + rows * columns * dtype.itemsize, path.stat().st_size
        if found < wanted:
            raise FileFormatError(f"{path}: truncated: {found} bytes of {wanted}. Copy or write it again.")
        return cls(path, rows, columns, dtype, bool(fortran) or columns == 1, offset)

    @property
    def torch_dtype(self) -> torch.dtype:
        """As torch has it."""
        return _DTYPES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.rows * self.columns * self.dtype.itemsize

    def load(self, first: int, out: Tensor, pieces: Sequence[Tensor]) -> None:
        """Fills ``out``, [rows, .], with columns from ``first`` on.

        A column-major file is read there alone; a row-major one as a whole.

        Args:
            first: Column.
            out: Contiguous, of this file's dtype.
            pieces: Vectors of that dtype and of one length, at least that of a row of the file. One is read
                while another is put into its place.
        """
        stored = out.size(1) if self.by_columns else self.columns
        step = pieces[0].numel() // max(stored, 1)
        fill = self._turned if self.by_columns else self._cut
        free: SimpleQueue[Tensor] = SimpleQueue()
        for piece in pieces:
            free.put(piece)
        with contextlib.ExitStack() as stack:
            # The system reads ahead for each open file, so each column has its own: twice as fast as one.
            streams = min(stored, _MOST_STREAMS) if self.by_columns else 1
            files = [stack.enter_context(self.path.open("rb", buffering=0)) for _ in range(streams)]

            def one(begin: int) -> None:
                piece = free.get()
                rows = min(step, self.rows - begin)
                fill(files, first, begin, out[begin : begin + rows], piece[: rows * stored])
                free.put(piece)

            readers = stack.enter_context(ThreadPoolExecutor(len(pieces), "onehop-panel"))
            for number, _ in enumerate(readers.map(one, range(0, self.rows, step)), 1):
                if number % _FORGET_PIECES == 0:
                    self._forget(files[0], first, stored, number * step)
            self._forget(files[0], first, stored, self.rows)

    def _forget(self, file: BinaryIO, first: int, columns: int, rows: int) -> None:
        """Has the system forget the first rows of some columns.

        It keeps memory in large pieces, and forgets none in part: what was left of one goes with later rows.
        """
        size = self.dtype.itemsize
        if not self.by_columns:
            os.posix_fadvise(file.fileno(), 0, self.offset + rows * columns * size, os.POSIX_FADV_DONTNEED)
            return
        for column in range(first, first + columns):
            place = self.offset + column * self.rows * size
            os.posix_fadvise(file.fileno(), place, rows * size, os.POSIX_FADV_DONTNEED)

    def _turned(self, files: Sequence[BinaryIO], first: int, begin: int, out: Tensor, piece: Tensor) -> None:
        """Some rows of some columns of a column-major file."""
        rows, columns = out.shape
        piece = piece.view(columns, rows)
        for number in range(columns):
            place = ((first + number) * self.rows + begin) * self.dtype.itemsize
            self._read(files[number % len(files)], place, piece[number])
        for row in range(0, rows, _TURN_ROWS):
            out[row : row + _TURN_ROWS] = piece[:, row : row + _TURN_ROWS].t()

    def _cut(self, files: Sequence[BinaryIO], first: int, begin: int, out: Tensor, piece: Tensor) -> None:
        """The same of a row-major file, of which whole rows are read."""
        rows, columns = out.shape
        piece = piece.view(rows, self.columns)
        self._read(files[0], begin * self.columns * self.dtype.itemsize, piece)
        out.copy_(piece[:, first : first + columns])

    def put(self, file: BinaryIO, row: int, first: int, block: Tensor, sync: bool) -> None:
        """Writes a block from a row and a column on; in a row-major file it has all columns.

        With ``sync`` it returns when all that was written is on the disk, and no longer in memory.

        Raises:
            StorageError: The disk is full, or the file may not grow.
        """
        size = self.dtype.itemsize
        with writing(self.path, block.nbytes):
            if self.by_columns:
                turned = block.t().contiguous()
                for number in range(block.size(1)):
                    _write(file, self.offset + ((first + number) * self.rows + row) * size, turned[number])
            else:
                _write(file, self.offset + row * self.columns * size, block)
            if sync:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _read(self, file: BinaryIO, place: int, into: Tensor) -> None:
        _fill(file, self.offset + place, into)


def read_into(file: BinaryIO, place: int, into: Tensor) -> None:
    """Fills a contiguous tensor from a place in a file, and lets the system forget what was read.

    Raises:
        FileFormatError: The file ends before.
    """
    _fill(file, place, into)
    os.posix_fadvise(file.fileno(), place, into.nbytes, os.POSIX_FADV_DONTNEED)


def _fill(file: BinaryIO, place: int, into: Tensor) -> None:
    wanted = into.nbytes
    view = _bytes(into)
    done = 0
    while done < wanted:
        count = os.preadv(file.fileno(), [view[done:]], place + done)
        if count == 0:
            raise FileFormatError(f"{file.name}: truncated at byte {place + done}. Copy or write it again.")
        done += count


def create(path: Path, rows: int, columns: int, dtype: np.dtype, by_columns: bool) -> MatrixFile:
    """A file of that shape, all of whose space is taken already.

    Raises:
        StorageError: The disk has not so much room.
    """
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": by_columns, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
        size = rows * columns * dtype.itemsize
        file.flush()
        if size:
            with writing(path, size):
                os.posix_fallocate(file.fileno(), offset, size)
    return MatrixFile(path, rows, columns, dtype, by_columns, offset)


@contextlib.contextmanager
def writing(path: Path, size: int) -> Iterator[None]:
    """What the system says against writing so many bytes, as an instruction.

    Raises:
        StorageError: The disk is full, or the file may not be that large.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"out: cannot write {size} bytes to {path} ({error.strerror}). Make room or give another place, "
            "and call again; results that were finished before are untouched."
        ) from error


def _write(file: BinaryIO, place: int, values: Tensor) -> None:
    view = _bytes(values.contiguous())
    done = 0
    while done < len(view):
        done += os.pwritev(file.fileno(), [view[done:]], place + done)
    # The disk begins with it at once, while the next piece is made.
    os.posix_fadvise(file.fileno(), place, len(view), os.POSIX_FADV_DONTNEED)


def _bytes(values: Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    flat: Any = values.numpy().reshape(-1).view(np.uint8)
    return memoryview(flat)


def _whole_file(name: str, array: np.memmap) -> Path:
    if array.filename is None or isinstance(array.base, np.ndarray):
        raise ArgumentError(f"{name}: a memory-mapped array must be all of its file; give the file's path.")
    return Path(array.filename)
