"""Division of a streamed aggregation: panels of columns, and tiles of rows in each.

The features of a panel's columns are in memory for all sources. For each panel, all edges are read once, tile
after tile. If a row is longer than a tile, it is divided into pieces, and each piece passes its result to the
next.
"""

from dataclasses import dataclass
from typing import NamedTuple

from onehop.errors import ArgumentError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.panels import most_bytes

# Number of tiles that are made while one is reduced.
TILES_AHEAD = 2
# Bytes in memory for each edge of a tile: as read (4) and in the tile's graph (4), for the tile being made,
# the waiting tiles and the tile in use.
_EDGE_BYTES = 8 * (TILES_AHEAD + 1)
_WEIGHT_BYTES = 8 * (TILES_AHEAD + 1)
# The maximal shares of the budget for the panel's features, and for the pieces in which they are read. The
# rest is for tiles, and for results that wait for the disk and keep it busy while the next panel is read.
_PANEL, _PIECES = 0.85, 0.05
_LEAST_PIECE = 4096
# If a row of the panel fills whole cache lines or half a line, it touches no more lines than necessary.
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Tiling:
    """The plan of a streamed aggregation.

    Attributes:
        columns: Number of columns of a panel.
        edges: Maximal number of edges of a tile.
        rows: Maximal number of rows of a tile.
        piece_bytes: Bytes of a piece of features that is read.
        waiting_bytes: Maximal bytes of results that wait to be written, unless one tile has more.
    """

    columns: int
    edges: int
    rows: int
    piece_bytes: int
    waiting_bytes: int


class Beside(NamedTuple):
    """Memory that is needed besides a panel and its tiles.

    Attributes:
        held_bytes: Bytes that are needed all the time.
        of_results: Bytes that are needed for each byte of a tile's result.
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
    """Return the plan with the fewest panels that a memory budget, in bytes, allows.

    Args:
        graph: The graph.
        x: The features.
        weighted: Whether edges have weights.
        memory: The budget.
        beside: Other memory that the budget has to cover.

    Raises:
        ArgumentError: The budget is too small for one column.
    """
    size = x.wide.itemsize
    check(graph.num_src, size, memory, beside.held_bytes)
    memory -= beside.held_bytes
    column = (graph.num_src + 1) * size  # one more row passes a result from one piece of a row to the next
    columns = _columns(max(x.columns, 1), int(memory * _PANEL) // column, _LINE_BYTES // size)
    piece = max(min(int(memory * _PIECES), most_bytes(x)), _LEAST_PIECE)
    per_edge = _EDGE_BYTES + (_WEIGHT_BYTES if weighted else 0)
    while True:
        rest = memory - piece - columns * column
        # The bytes are a row's result, its transposed copy for the file, and its pointers in each tile: as
        # read, counted from 0, and in the tile's graph.
        per_row = (2 + beside.of_results) * columns * size + 24 * (TILES_AHEAD + 1)
        if rest >= 3 * (per_edge + per_row):
            break
        columns = (columns + 1) // 2  # there are so many columns that a tile of one row does not fit
    return Tiling(columns, rest // 3 // per_edge, rest // 3 // per_row, piece, rest // 3)


def check(sources: int, size: int, memory: int, held: int) -> None:
    """Check that a budget, in bytes, is enough for some plan.

    Args:
        sources: Number of sources.
        size: Bytes of one number of the panel.
        memory: The budget.
        held: Bytes of the budget for other purposes.

    Raises:
        ArgumentError: The budget is too small for one column.
    """
    need = int((sources + 1) * size / _PANEL) + 1 + 2 * _LEAST_PIECE + held
    if memory < need:
        raise ArgumentError(
            f"memory: {memory} bytes do not hold one column of {sources} sources; {need} are needed. Where "
            "memory was not given, that is six tenths of what this process may still take."
        )


def _columns(columns: int, most: int, line: int) -> int:
    """Return the columns of a panel, at most ``most``; panels are equal, rows fill whole lines if possible.

    Two panels with rows of half a line take less time than one panel whose rows cross cache lines.
    """
    if most < 1:
        return 0
    if most >= columns:
        return columns
    unit = next(unit for unit in (line, line // 2, 1) if most >= unit)
    panels = -(-columns // (most - most % unit))
    return -(-columns // (panels * unit)) * unit
