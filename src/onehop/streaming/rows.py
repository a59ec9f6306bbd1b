"""Blocks of rows and columns of a matrix in a file, read when they are needed."""

from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from onehop.graph.pieces import PieceReader
from onehop.ops.streaming.matrix_file import MatrixFile


class RowReader:
    """Reads blocks of a matrix.

    Args:
        x: The file.
    """

    def __init__(self, x: MatrixFile) -> None:
        self._x, self._reader = x, PieceReader(x.path)

    def block(self, row: int, column: int, rows: int, columns: int) -> Tensor:
        """[rows, columns], in the file's wide dtype, from a row and a column on.

        Raises:
            FileFormatError: The file is truncated.
        """
        x, size = self._x, self._x.dtype.itemsize
        if x.by_columns:
            turned = np.empty((columns, rows), x.dtype)
            for number in range(columns):
                place = x.offset + ((column + number) * x.rows + row) * size
                self._read(place, turned[number])
            found = turned.T
        else:
            whole = np.empty((rows, x.columns), x.dtype)
            self._read(x.offset + row * x.columns * size, whole)
            found = whole[:, column : column + columns]
        return torch.from_numpy(np.ascontiguousarray(x.widened(found), dtype=x.wide))

    def _read(self, place: int, room: np.ndarray) -> None:
        self._reader.read(place, room.nbytes, room.reshape(-1).view(np.uint8), 0)

    def __enter__(self) -> "RowReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self._reader.__exit__(kind, error, trace)
