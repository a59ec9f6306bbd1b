"""Panels of a matrix in a file: some columns, transposed to rows; one panel is in memory at a time."""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.graph.pieces import BLOCK_BYTES, PieceReader, whole_blocks
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile

# Number of pieces in memory: some are being read while another is transposed.
_READERS = 3
# Bytes of each column in a piece: a larger value made no tested disk faster, and below the smaller value,
# requests are too short to bypass the page cache (benchmarks/outofcore/bench_disk_reads.py).
_REQUEST_BYTES, _LEAST_DIRECT_BYTES = 1 << 21, 1 << 17
# As many columns are read together as fill a cache line in each row of the panel, so that each line is
# written once.
_LINE_BYTES = 64


def most_bytes(x: MatrixFile) -> int:
    """Return the memory for pieces beyond which reading does not become faster."""
    return _READERS * _side_by_side(x) * (_REQUEST_BYTES + 4 * BLOCK_BYTES)


class Panels:
    """Reads panels of a matrix: some columns of all or some rows, stored row by row in memory.

    For a column-major file, only these columns are read; a row-major file is read as a whole for each panel.

    Args:
        x: The file.
        piece_bytes: The memory for the pieces being read; more is used if it cannot hold one value of each
            column.
    """

    def __init__(self, x: MatrixFile, piece_bytes: int) -> None:
        self._x = x
        # The contiguous bytes in the file for one row of a piece, and the number of such parts of a row.
        self._cell = x.dtype.itemsize * (1 if x.by_columns else x.columns)
        self._streams = _side_by_side(x) if x.by_columns else 1
        self._least_direct = max(_LEAST_DIRECT_BYTES, self._cell + 4 * BLOCK_BYTES)
        least = self._cell * self._streams
        size = -(-max(piece_bytes // _READERS, least) // BLOCK_BYTES) * BLOCK_BYTES
        # The memory has large pages, because the disk can fill contiguous memory with one request.
        room = native.empty((-(-(_READERS * size + BLOCK_BYTES) // 4),), torch.float32)
        whole = whole_blocks(room.numpy().view(np.uint8))
        self._rooms = [whole[begin : begin + size] for begin in range(0, _READERS * size, size)]

    def load(self, first: int, out: Tensor, row: int = 0) -> None:
        """Fill ``out``, [rows, .] of the file's wide dtype, with columns from ``first`` on.

        Args:
            first: The first column.
            out: The tensor to fill.
            row: The row of the file that is the first row of ``out``.

        Raises:
            FileFormatError: The file is truncated.
        """
        x, panel = self._x, out.numpy()
        free: SimpleQueue[np.ndarray] = SimpleQueue()
        for room in self._rooms:
            free.put(room)
        share = len(self._rooms[0]) // self._streams
        # If numbers begin at unaligned bytes in the file, they would also be unaligned in memory.
        direct = share >= self._least_direct and x.offset % x.dtype.itemsize == 0
        with PieceReader(x.path, direct) as reader, ThreadPoolExecutor(_READERS, "onehop-panel") as readers:
            step = (share - 4 * (reader.block - 1)) // self._cell
            width = self._streams if x.by_columns else out.size(1)
            begins, columns = range(0, len(out), step), range(0, out.size(1), width)
            places = [(begin, column) for begin in begins for column in columns]

            def one(place: tuple[int, int]) -> None:
                begin, column = place
                into = panel[begin : begin + step, column : column + width]
                room = free.get()
                try:
                    piece = self._columns if x.by_columns else self._rows
                    numbers = piece(reader, row + begin, first + column, into.shape, room)
                    np.copyto(into, x.widened(numbers))
                finally:
                    free.put(room)

            for _ in readers.map(one, places):
                pass

    def _columns(
        self, reader: PieceReader, row: int, column: int, shape: tuple[int, ...], room: np.ndarray
    ) -> np.ndarray:
        """Read [rows, columns] of a column-major file into ``room``; each column stays contiguous."""
        x, (rows, columns) = self._x, shape
        size, block = x.dtype.itemsize, reader.block
        place = x.offset + (column * x.rows + row) * size
        # The distance of columns equals their distance in the file, minus whole blocks. So each column can be
        # read in whole blocks, and these blocks do not overlap with the neighbouring columns.
        apart = -(-(rows * size + 2 * (block - 1)) // block) * block + x.rows * size % block
        for number in range(columns):
            reader.read(place + number * x.rows * size, rows * size, room, place % block + number * apart)
        return np.ndarray(shape, x.dtype, room.data, place % block, (size, apart))

    def _rows(
        self, reader: PieceReader, row: int, column: int, shape: tuple[int, ...], room: np.ndarray
    ) -> np.ndarray:
        """Read [rows, columns] of a row-major file; whole rows are read."""
        x, (rows, columns) = self._x, shape
        place = x.offset + row * self._cell
        reader.read(place, rows * self._cell, room, place % reader.block)
        whole = np.ndarray((rows, x.columns), x.dtype, room.data, place % reader.block)
        return whole[:, column : column + columns]


def _side_by_side(x: MatrixFile) -> int:
    return min(max(x.columns, 1), _LINE_BYTES // x.dtype.itemsize)


class Features:
    """The panel that is in memory, with one row more than there are sources, and fingerprints of all panels.

    Args:
        x: The file.
        columns: Number of columns of a panel.
        piece_bytes: See :class:`Panels`.
        scale: [rows], of the file's wide dtype: multiplies the rows; None means 1.

    Attributes:
        fingerprints: The fingerprints of the contents of all panels that were read, in order.
    """

    def __init__(self, x: MatrixFile, columns: int, piece_bytes: int, scale: Tensor | None = None) -> None:
        self._x, self._columns, self._scale = x, columns, scale
        # All panels use the same memory, so that memory of the last panel that an allocator keeps does not
        # add to the next. It has large pages, in which rows are accessed faster.
        self._room = native.empty(((x.rows + 1) * columns,), WIDE[x.wide])
        self._panels = Panels(x, piece_bytes)
        self._first, self._panel = -1, self._room[:0]
        self.fingerprints: list[int] = []

    def panel(self, first: int) -> Tensor:
        """Return the panel that begins with this column, [rows, .]; valid until the next one is requested.

        Raises:
            FileFormatError: The file is truncated.
        """
        if first != self._first:
            # The pool may hold results of the last panel with sizes that this panel cannot use.
            native.extension.pool_clear()
            width = min(self._columns, self._x.columns - first)
            self._panel = self._room[: (self._x.rows + 1) * width].view(self._x.rows + 1, width)
            self._first = -1  # invalid until the whole panel is read
            self._panels.load(first, self._panel[:-1])
            number = first // self._columns
            self.fingerprints[number:] = [fingerprint(self._panel[:-1])]
            if self._scale is not None:
                self._panel[:-1] *= self._scale[:, None]
            self._first = first
        return self._panel[:-1]

    def panel_with(self, first: int, carried: Tensor) -> Tensor:
        """Return the panel with ``carried``, [1, .], as an additional last row, [rows + 1, .]."""
        self.panel(first)
        self._panel[-1:] = carried
        return self._panel


def fingerprint(values: Tensor, threads: int | None = None) -> int:
    """Return a hash of a contiguous tensor's contents, for any number of threads (None: torch's number)."""
    if not values.numel():
        return 0
    many = native.threads() if threads is None else threads
    return int(native.extension.fingerprint(values.data_ptr(), values.nbytes, many))
