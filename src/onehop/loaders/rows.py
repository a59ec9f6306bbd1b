"""Rows of features by the numbers of nodes or edges, gathered in one call, from memory or from a file."""

import mmap
import os
import warnings
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, IndexRangeError
from onehop.kernels.cpu.rows import copy_mapped_rows, copy_rows
from onehop.ops.streaming import RawMatrix
from onehop.ops.streaming.matrix_file import MatrixFile


@runtime_checkable
class Rows(Protocol):
    """A source of features for a loader.

    Attributes:
        in_order: Whether requests must be made one after the other, in the same order in every process.
    """

    in_order: bool

    def __len__(self) -> int:
        """The number of rows."""

    def rows(self, numbers: Tensor) -> Tensor:
        """Return [n, ...]: the rows of these numbers, [n], int64, in memory that nobody else has."""


class HeldRows:
    """Rows of a tensor, or of a file that is mapped and stays on disk.

    What :meth:`rows` returns lies in memory of its own, which comes from the pool of kept memory: it goes
    back there when the last tensor that shares it is gone, and only then it is used again.

    Args:
        name: The argument's name, for messages.
        given: [N, ...], a tensor on the CPU or a NumPy array, which may be memory-mapped; the path of a .npy
            file; or a :class:`onehop.RawMatrix` by rows. It must not be written to.

    Raises:
        ArgumentError: It is none of them.
        FileFormatError: The file is damaged or truncated.
        FileNotFoundError: There is no such file.
    """

    in_order = False

    def __init__(self, name: str, given: Tensor | np.ndarray | RawMatrix | str | os.PathLike[str]) -> None:
        if isinstance(given, RawMatrix | str | os.PathLike):
            array, dtype = _opened(name, given)
            held = _as_tensor(array)
            self._matrix = held if dtype is None else held.view(dtype)
            self._is_mapped = _is_mapped(array)
        elif isinstance(given, np.ndarray) and not given.dtype.hasobject:
            self._matrix, self._is_mapped = _as_tensor(given), _is_mapped(given)
        elif isinstance(given, Tensor):
            self._matrix, self._is_mapped = given.detach(), False
        else:
            raise ArgumentError(
                f"{name}: expected a tensor, a NumPy array, the path of a .npy file, a RawMatrix, or an "
                f"object with rows(numbers), got {type(given).__name__}."
            )
        if self._matrix.dim() == 0 or not self._matrix.is_cpu or self._matrix.layout != torch.strided:
            raise ArgumentError(
                f"{name}: expected rows [N, ...] in the CPU's memory, got shape {list(self._matrix.shape)} "
                f"on {self._matrix.device}."
            )
        self._name = name

    def __len__(self) -> int:
        """The number of rows."""
        return self._matrix.size(0)

    def rows(self, numbers: Tensor) -> Tensor:
        """Return [n, ...]: the rows of these numbers.

        Args:
            numbers: [n], int64.

        Raises:
            IndexRangeError: There is no row of one of the numbers.
        """
        if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self):
            raise IndexRangeError(
                f"{self._name}: expected rows 0 to {len(self) - 1}, was asked for {int(numbers.min())} to "
                f"{int(numbers.max())}. Give a row for each node of the graph."
            )
        shape, dtype = (numbers.numel(), *self._matrix.shape[1:]), self._matrix.dtype
        pooled = dtype in native.DTYPE_CODES
        out = native.empty(shape, dtype) if pooled else torch.empty(shape, dtype=dtype, device="cpu")
        copy = copy_mapped_rows if self._is_mapped else copy_rows
        copy(self._matrix, numbers.contiguous(), out)
        return out


def rows_of(name: str, given: object, expected: int, what: str) -> Rows:
    """The rows that an argument stands for.

    Args:
        name: Of the argument.
        given: As :class:`HeldRows` takes it, or :class:`Rows`.
        expected: How many there must be.
        what: What each belongs to.

    Raises:
        ArgumentError: It is none of them, or has another number of rows.
    """
    rows: Rows = given if isinstance(given, Rows) else HeldRows(name, given)  # type: ignore[arg-type]
    if len(rows) != expected:
        raise ArgumentError(f"{name}: expected {expected} rows, one for each {what}, got {len(rows)}.")
    return rows


def _opened(name: str, given: RawMatrix | str | os.PathLike[str]) -> tuple[np.ndarray, torch.dtype | None]:
    """The contents of a file, mapped unless there are none; the dtype that they stand for, if another."""
    if isinstance(given, RawMatrix):
        file = MatrixFile.open(name, given)
        if file.by_columns and file.columns > 1:
            raise ArgumentError(
                f"{name}: expected the numbers of a row one after the other; store it by rows."
            )
        shape = (file.rows, file.columns)
        if not file.nbytes:
            return np.empty(shape, file.dtype), file.torch_dtype
        return np.memmap(file.path, file.dtype, "r", file.offset, shape), file.torch_dtype
    try:
        array = np.load(given, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "mmap an empty file" not in str(error):
            raise ArgumentError(f"{name}: {os.fspath(given)} cannot be mapped ({error}).") from error
        array = np.load(given, allow_pickle=False)
    return array, None


def _is_mapped(array: np.ndarray) -> bool:
    return getattr(array, "_mmap", None) is not None


def _as_tensor(array: np.ndarray) -> Tensor:
    """The same memory. Of a mapped file, the system reads no more than the pages that rows lie in."""
    file = getattr(array, "_mmap", None)
    if file is not None:
        file.madvise(mmap.MADV_RANDOM)
    with warnings.catch_warnings():
        # torch warns of arrays that it cannot write to; rows are copied out of this one.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
