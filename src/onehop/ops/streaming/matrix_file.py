"""A matrix in a .npy file, read and written by pieces without mapping it."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from onehop import storage
from onehop.errors import ArgumentError, FileFormatError

_DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """The location of a matrix's numbers.

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


def create(path: Path, rows: int, columns: int, dtype: np.dtype, by_columns: bool) -> MatrixFile:
    """A file of that shape, all of whose space is taken already.

    Raises:
        StorageError: The disk has not so much room.
    """
    with writing(path), path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": by_columns, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
        size = rows * columns * dtype.itemsize
        file.flush()
        if size:
            with writing(path, size):
                os.posix_fallocate(file.fileno(), offset, size)
    return MatrixFile(path, rows, columns, dtype, by_columns, offset)


def writing(path: Path, size: int | None = None) -> contextlib.AbstractContextManager[None]:
    """The system's objection to writing so many bytes, as an instruction.

    Raises:
        StorageError: The disk is full, the file may not be that large, or the folder cannot be written.
    """
    return storage.writing("out", path, size, "results that were finished before are untouched")


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
