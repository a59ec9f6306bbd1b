"""Division of a streamed aggregation: panels of columns, and tiles of rows in each.

The features of a panel's columns are in memory for all sources; the edges pass by, tile after tile, once for
each panel. The pieces of a row that is
longer than a tile hand on what they have come to.
"""

from dataclasses import dataclass
from typing import NamedTuple

from onehop.errors import ArgumentError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.panels import most_bytes

# So many tiles are made while one is reduced.
TILES_AHEAD = 2
# Bytes in memory for each edge of a tile: as read (4) and in the tile's graph (4), for the tile that is made,
# for those that wait and for the one in use.
_EDGE_BYTES = 8 * (TILES_AHEAD + 1)
_WEIGHT_BYTES = 8 * (TILES_AHEAD + 1)
# Of the budget, at most: for the panel's features, and for the pieces they are read in. The rest is for tiles
# and for results that wait for the disk, and keep it busy while the next panel is read.
_PANEL, _PIECES = 0.85, 0.05
_LEAST_PIECE = 4096
# A row of the panel that fills lines of the cache, or half a line, touches no more of them than it must.
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Tiling:
    """The plan.

    Attributes:
        columns: Of a panel.
        edges: Of a tile, at most.
        rows: Of a tile, at most.
        piece_bytes: Bytes of a piece of features that is read.
        waiting_bytes: Bytes of the result that may wait to be written, unless one tile has more.
    """

    columns: int
    edges: int
    rows: int
    piece_bytes: int
    waiting_bytes: int


class Beside(NamedTuple):
    """Memory that is taken beside a panel and its tiles.

    Attributes:
        held_bytes: All the time.
        of_results: For each byte of a tile's result.
    """

    held_bytes: int = 0
    of_results: int = 0


def tiling(
    graph: StoredGraph,
    x: MatrixFile,
    weighted: bool,
    memory: int,
    beside: Beside = Beside(),  # noqa: B008 (it cannot change)
) -> Tiling:
    """The fewest panels that a budget of memory, in bytes, allows.

    Args:
        graph: The graph.
        x: The features.
        weighted: Whether edges have weights.
        memory: The budget.
        beside: What else it is for.

    Raises:
        ArgumentError: The budget does not hold one column.
    """
    size = x.wide.itemsize
    check(graph.num_src, size, memory, beside.held_bytes)
    memory -= beside.held_bytes
    column = (graph.num_src + 1) * size  # and what is carried from one piece of a row to the next
    columns = _columns(max(x.columns, 1), int(memory * _PANEL) // column, _LINE_BYTES // size)
    piece = max(min(int(memory * _PIECES), most_bytes(x)), _LEAST_PIECE)
    per_edge = _EDGE_BYTES + (_WEIGHT_BYTES if weighted else 0)
    while True:
        rest = memory - piece - columns * column
        # A row's result, and the same turned round for the file; and its pointers in each tile, as read, from
        # 0 on, and in the tile's graph.
        per_row = (2 + beside.of_results) * columns * size + 24 * (TILES_AHEAD + 1)
        if rest >= 3 * (per_edge + per_row):
            break
        columns = (columns + 1) // 2  # few rows, and more columns than a tile of one row has room for
    return Tiling(columns, rest // 3 // per_edge, rest // 3 // per_row, piece, rest // 3)


def check(sources: int, size: int, memory: int, held: int) -> None:
    """Looks whether a budget, in bytes, is enough for any tiling.

    Args:
        sources: Number of sources.
        size: Bytes of a number of the panel.
        memory: The budget.
        held: Bytes of it that are for other things.

    Raises:
        ArgumentError: It does not hold one column.
    """
    need = int((sources + 1) * size / _PANEL) + 1 + 2 * _LEAST_PIECE + held
    if memory < need:
        raise ArgumentError(
            f"memory: {memory} bytes do not hold one column of {sources} sources; {need} are needed. Where "
            "memory was not given, that is six tenths of what this process may still take."
        )


def _columns(columns: int, most: int, line: int) -> int:
    """Of a panel of ``most`` columns at most: all panels alike, and rows that are whole lines where one fits.

    Two panels with rows of half a line take less time than one whose rows straddle lines.
    """
    if most < 1:
        return 0
    if most >= columns:
        return columns
    unit = next(unit for unit in (line, line // 2, 1) if most >= unit)
    panels = -(-columns // (most - most % unit))
    return -(-columns // (panels * unit)) * unit
