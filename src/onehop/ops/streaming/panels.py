"""Panels of a matrix in a file: columns, read side by side and turned round into rows; one is in memory."""

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.graph.pieces import BLOCK_BYTES, PieceReader, whole_blocks
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile

# Some pieces are being read while another is turned round.
_READERS = 3
# In a piece, of each column: more makes no disk faster that was tried, and with less than the least of it
# requests are too short to go past the page cache (benchmarks/outofcore/bench_disk_reads.py).
_REQUEST_BYTES, _LEAST_DIRECT_BYTES = 1 << 21, 1 << 17
# Columns that are read side by side fill a line of the cache in each row of the panel, which is written once.
_LINE_BYTES = 64


def most_bytes(x: MatrixFile) -> int:
    """More memory than this for pieces makes reading no faster."""
    return _READERS * _side_by_side(x) * (_REQUEST_BYTES + 4 * BLOCK_BYTES)


class Panels:
    """Reads panels of a matrix: some columns of all rows or of some, in memory row by row.

    A column-major file is read there alone; a row-major one as a whole for each panel.

    Args:
        x: The file.
        piece_bytes: For the pieces being read; more, if they do not hold a value of each column.
    """

    def __init__(self, x: MatrixFile, piece_bytes: int) -> None:
        self._x = x
        # Bytes that are contiguous in the file for one row of a piece, and how many such parts a row has.
        self._cell = x.dtype.itemsize * (1 if x.by_columns else x.columns)
        self._streams = _side_by_side(x) if x.by_columns else 1
        self._least_direct = max(_LEAST_DIRECT_BYTES, self._cell + 4 * BLOCK_BYTES)
        least = self._cell * self._streams
        size = -(-max(piece_bytes // _READERS, least) // BLOCK_BYTES) * BLOCK_BYTES
        # In large pages: the disk takes contiguous memory in one request.
        room = native.empty((-(-(_READERS * size + BLOCK_BYTES) // 4),), torch.float32)
        whole = whole_blocks(room.numpy().view(np.uint8))
        self._rooms = [whole[begin : begin + size] for begin in range(0, _READERS * size, size)]

    def load(self, first: int, out: Tensor, row: int = 0) -> None:
        """Fills ``out``, [rows, .] of the file's wide dtype, with columns from ``first`` on.

        Args:
            first: The first column.
            out: To be filled.
            row: Its first row.

        Raises:
            FileFormatError: The file is truncated.
        """
        x, panel = self._x, out.numpy()
        free: SimpleQueue[np.ndarray] = SimpleQueue()
        for room in self._rooms:
            free.put(room)
        share = len(self._rooms[0]) // self._streams
        # Numbers that begin at odd bytes would be in memory at odd ones, too.
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
        """[rows, columns] of a column-major file, in the room, where each column is still contiguous."""
        x, (rows, columns) = self._x, shape
        size, block = x.dtype.itemsize, reader.block
        place = x.offset + (column * x.rows + row) * size
        # Columns are as far apart as they are in the file, less whole blocks: so each one can be read into
        # its place in whole blocks, and its neighbours are no nearer than the ends of these.
        apart = -(-(rows * size + 2 * (block - 1)) // block) * block + x.rows * size % block
        for number in range(columns):
            reader.read(place + number * x.rows * size, rows * size, room, place % block + number * apart)
        return np.ndarray(shape, x.dtype, room.data, place % block, (size, apart))

    def _rows(
        self, reader: PieceReader, row: int, column: int, shape: tuple[int, ...], room: np.ndarray
    ) -> np.ndarray:
        """[rows, columns] of a row-major file, of which whole rows are read."""
        x, (rows, columns) = self._x, shape
        place = x.offset + row * self._cell
        reader.read(place, rows * self._cell, room, place % reader.block)
        whole = np.ndarray((rows, x.columns), x.dtype, room.data, place % reader.block)
        return whole[:, column : column + columns]


def _side_by_side(x: MatrixFile) -> int:
    return min(max(x.columns, 1), _LINE_BYTES // x.dtype.itemsize)


class Features:
    """The panel that is in memory, with a row more than there are sources, and what was in those before.

    Args:
        x: The file.
        columns: Of a panel.
        piece_bytes: As in :class:`Panels`.
        scale: [rows], of the file's wide dtype: multiplies the rows; None means 1.

    Attributes:
        fingerprints: Of the contents of each panel that was read, the first one first.
    """

    def __init__(self, x: MatrixFile, columns: int, piece_bytes: int, scale: Tensor | None = None) -> None:
        self._x, self._columns, self._scale = x, columns, scale
        # The same for all panels: what an allocator keeps of the last one must not come on top of the next.
        # In large pages, where rows are found faster.
        self._room = native.empty(((x.rows + 1) * columns,), WIDE[x.wide])
        self._panels = Panels(x, piece_bytes)
        self._first, self._panel = -1, self._room[:0]
        self.fingerprints: list[int] = []

    def panel(self, first: int) -> Tensor:
        """[rows, .]: the panel that begins with this column; valid until the next one is requested.

        Raises:
            FileFormatError: The file is truncated.
        """
        if first != self._first:
            # Results of the last panel have sizes that this one may have no use for.
            native.extension.pool_clear()
            width = min(self._columns, self._x.columns - first)
            self._panel = self._room[: (self._x.rows + 1) * width].view(self._x.rows + 1, width)
            self._first = -1  # until all of it is there
            self._panels.load(first, self._panel[:-1])
            number = first // self._columns
            self.fingerprints[number:] = [fingerprint(self._panel[:-1])]
            if self._scale is not None:
                self._panel[:-1] *= self._scale[:, None]
            self._first = first
        return self._panel[:-1]

    def panel_with(self, first: int, carried: Tensor) -> Tensor:
        """[rows + 1, .]: the same, and ``carried``, [1, .], as a row behind."""
        self.panel(first)
        self._panel[-1:] = carried
        return self._panel


def fingerprint(values: Tensor, threads: int | None = None) -> int:
    """Of the contents of a contiguous tensor; the same for any number of threads, None meaning torch's."""
    if not values.numel():
        return 0
    many = native.threads() if threads is None else threads
    return int(native.extension.fingerprint(values.data_ptr(), values.nbytes, many))
