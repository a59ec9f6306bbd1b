"""The features of one panel of columns in memory, one panel after the other."""

from torch import Tensor

from onehop import native
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile
from onehop.ops.streaming.panels import Panels
from onehop.ops.streaming.tiles import Tiling


class Features:
    """The panel that is in memory, with a row more than there are sources, and what was in those before.

    Args:
        x: The file.
        tiles: How it is cut.
        scale: [rows], of the file's wide dtype: multiplies the rows; None means 1.

    Attributes:
        fingerprints: Of the contents of each panel that was read, the first one first.
    """

    def __init__(self, x: MatrixFile, tiles: Tiling, scale: Tensor | None = None) -> None:
        self._x, self._columns, self._scale = x, tiles.columns, scale
        # The same for all panels: what an allocator keeps of the last one must not come on top of the next.
        # In large pages, where rows are found faster.
        self._room = native.empty(((x.rows + 1) * tiles.columns,), WIDE[x.wide])
        self._panels = Panels(x, tiles.piece_bytes)
        self._first, self._panel = -1, self._room[:0]
        self.fingerprints: list[int] = []

    def panel(self, first: int) -> Tensor:
        """[rows, .]: the panel that begins with this column; valid until the next one is asked for.

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
