"""A matrix in a .npy file or a raw file, which is read and written in pieces without mapping it."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from onehop import native, storage
from onehop.errors import ArgumentError, FileFormatError, integer

# NumPy has no bfloat16, so its bits are read as uint16.
_BFLOAT16 = np.dtype(np.uint16)
_DTYPES: dict[np.dtype, torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.float16): torch.float16,
}
WIDE = {dtype: of_torch for dtype, of_torch in _DTYPES.items() if dtype.itemsize > 2}
"""The torch dtypes in which numbers are added up."""
_RAW_DTYPES: dict[str, np.dtype] = {**{dtype.name: dtype for dtype in _DTYPES}, "bfloat16": _BFLOAT16}


@dataclass(frozen=True, slots=True)
class RawMatrix:
    """A matrix in a file without a header, in this machine's byte order.

    Attributes:
        path: The file.
        shape: (rows, columns).
        dtype: "float32", "float64", "float16" or "bfloat16".
        by_columns: Whether the numbers of a column are contiguous.
        offset: The position of the first number, in bytes.

    Examples:
        >>> import numpy, onehop, tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]])).save(f"{folder}/a")
        ...     numpy.float32([[1, 2], [10, 20], [5, 5]]).tofile(f"{folder}/x.raw")
        ...     x = onehop.RawMatrix(f"{folder}/x.raw", shape=(3, 2))
        ...     print(numpy.load(onehop.aggregate(graph, x, out=f"{folder}/out.npy")).tolist())
        [[0.0, 0.0], [1.0, 2.0], [11.0, 22.0]]
    """

    path: str | os.PathLike[str]
    shape: tuple[int, int]
    dtype: str = "float32"
    by_columns: bool = False
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MatrixFile:
    """The file, shape and layout of a matrix.

    Attributes:
        path: The file.
        rows: Number of rows.
        columns: Number of columns.
        dtype: float16, float32 or float64; uint16 for the bits of bfloat16.
        by_columns: Whether the numbers of a column are contiguous (NumPy's Fortran order).
        offset: The position of the first number, in bytes.
    """

    path: Path
    rows: int
    columns: int
    dtype: np.dtype
    by_columns: bool
    offset: int

    @classmethod
    def open(cls, name: str, source: object) -> "MatrixFile":
        """Open a matrix, given as a path, a memory-mapped array of the whole file, or a :class:`RawMatrix`.

        Raises:
            ArgumentError: ``source`` is none of these, the array is a part of its file, or the description of
                the raw file is inconsistent.
            FileFormatError: The file does not contain a matrix of floats, or is truncated.
            FileNotFoundError: There is no such file.
        """
        if isinstance(source, RawMatrix):
            return cls._raw(name, source)
        if isinstance(source, np.memmap):
            source = _whole_file(name, source)
        if not isinstance(source, (str, os.PathLike)):
            raise ArgumentError(
                f"{name}: expected the path of a .npy file, a memory-mapped one or a RawMatrix, got "
                f"{type(source).__name__}; write it with numpy.save."
            )
        path = Path(source)
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
                f"{path}: expected a matrix of float16, float32 or float64, got {dtype} of shape "
                f"{list(shape)}."
            )
        rows, columns = shape if len(shape) == 2 else (shape[0], 1)
        return cls(path, rows, columns, dtype, bool(fortran) or columns == 1, offset)._whole()

    @classmethod
    def _raw(cls, name: str, matrix: RawMatrix) -> "MatrixFile":
        try:
            rows, columns = (integer(name, each) for each in matrix.shape)
            offset = integer(name, matrix.offset)
        except ArgumentError:
            offset = -1
        if offset < 0 or matrix.dtype not in _RAW_DTYPES:
            raise ArgumentError(
                f"{name}: expected a RawMatrix of a shape and an offset of 0 or more and a dtype of "
                f"{', '.join(_RAW_DTYPES)}, got {matrix}."
            )
        path, dtype = Path(matrix.path), _RAW_DTYPES[matrix.dtype]
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file.")
        by_columns = matrix.by_columns or columns == 1
        return cls(path, rows, columns, dtype, by_columns, offset)._whole()

    def _whole(self) -> "MatrixFile":
        expected, size = self.offset + self.nbytes, self.path.stat().st_size
        if size < expected:
            raise FileFormatError(
                f"{self.path}: truncated: {size} bytes of {expected}. Copy or write it again."
            )
        return self

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as a torch dtype."""
        return torch.bfloat16 if self.dtype == _BFLOAT16 else _DTYPES[self.dtype]

    @property
    def wide(self) -> np.dtype:
        """The dtype in which the numbers are added up; 16-bit numbers are added up in float32."""
        return self.dtype if self.dtype.itemsize > 2 else np.dtype(np.float32)

    @property
    def result(self) -> np.dtype:
        """The dtype of results in .npy files; for bfloat16, which .npy files lack, the dtype of sums."""
        return self.wide if self.dtype == _BFLOAT16 else self.dtype

    def widened(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers from the file in a dtype that NumPy can convert to :attr:`wide`."""
        if self.dtype != _BFLOAT16:
            return numbers
        # bfloat16 is the upper half of float32.
        return (numbers.astype(np.uint32) << 16).view(np.float32)

    @property
    def nbytes(self) -> int:
        """The number of bytes of all numbers."""
        return self.rows * self.columns * self.dtype.itemsize

    def put(self, file: BinaryIO, row: int, first: int, block: Tensor) -> None:
        """Write a block at a row and a column, rounded to the file's dtype.

        In a row-major file, the block must have all columns.

        Raises:
            StorageError: The disk is full, or the file must not grow.
        """
        size = self.dtype.itemsize
        block = block.to(self.torch_dtype)
        with writing(self.path, block.nbytes):
            if self.by_columns:
                turned = _turned(block)
                for number in range(block.size(1)):
                    _write(file, self.offset + ((first + number) * self.rows + row) * size, turned[number])
            else:
                _write(file, self.offset + row * self.columns * size, block)

    def sync(self, file: BinaryIO) -> None:
        """Wait until everything that was written is on the disk, and drop it from the page cache.

        Raises:
            StorageError: The disk is full.
        """
        with writing(self.path):
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def create(path: Path, rows: int, columns: int, dtype: np.dtype, by_columns: bool) -> MatrixFile:
    """Create a file of this shape, and reserve all of its disk space.

    Raises:
        StorageError: The disk does not have enough space.
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
    """Return a context that turns the system's errors while writing into instructions.

    Raises:
        StorageError: The disk is full, the file must not be that large, or the folder is not writable.
    """
    return storage.writing("out", path, size, "results that were finished before are untouched")


def _turned(block: Tensor) -> Tensor:
    """Return the transposed block, [columns, rows], contiguous; only this thread works on it."""
    block = block.contiguous()
    turned = native.empty((block.size(1), block.size(0)), block.dtype)
    native.extension.turn_rows(
        block.data_ptr(), block.size(0), block.size(1), block.element_size(), turned.data_ptr()
    )
    return turned


def _write(file: BinaryIO, place: int, values: Tensor) -> None:
    flat: Any = values.contiguous().numpy().reshape(-1).view(np.uint8)
    view, done = memoryview(flat), 0
    while done < len(view):
        done += os.pwritev(file.fileno(), [view[done:]], place + done)
    # This makes the system begin to write at once, while the next piece is computed.
    os.posix_fadvise(file.fileno(), place, len(view), os.POSIX_FADV_DONTNEED)


def _whole_file(name: str, array: np.memmap) -> Path:
    if array.filename is None or isinstance(array.base, np.ndarray):
        raise ArgumentError(f"{name}: a memory-mapped array must be all of its file; give the file's path.")
    return Path(array.filename)
