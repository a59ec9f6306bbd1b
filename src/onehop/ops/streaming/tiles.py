"""Division of a streamed aggregation: panels of columns, and tiles of rows in each.

The features of a panel's columns are in memory for all sources; the edges pass by, tile after tile, once for
each panel. The pieces of a row that is
longer than a tile hand on what they have come to.
"""

from dataclasses import dataclass

from onehop.errors import ArgumentError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.panels import most_bytes

# So many tiles are made while one is reduced.
TILES_AHEAD = 2
# Bytes in memory for each edge of a tile: as read (4) and as 64-bit destinations and sources (16) while the
# tile's graph is made, and in that graph (8), of which there is one more that waits, and one in use.
_EDGE_BYTES = 20 + 8 * TILES_AHEAD
_WEIGHT_BYTES = 8 * (TILES_AHEAD + 1)
# Of the budget, at most: for the panel's features, and for the pieces they are read in. The rest is for tiles
# and for results that wait for the disk, and keep it busy while the next panel is read.
_PANEL, _PIECES = 0.75, 0.05
# A row of the panel that fills lines of the cache touches no more of them than it must.
_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Tiling:
    """The plan.

    Attributes:
        columns: Of a panel.
        edges: Of a tile, at most.
        rows: Of a tile, at most.
        piece_bytes: Features are read in pieces of so many.
        waiting_bytes: So many of the result may wait to be written, unless one tile has more.
    """

    columns: int
    edges: int
    rows: int
    piece_bytes: int
    waiting_bytes: int


def tiling(graph: StoredGraph, x: MatrixFile, weighted: bool, memory: int, scales: int = 0) -> Tiling:
    """The fewest panels that a budget of memory, in bytes, allows.

    Args:
        graph: The graph.
        x: The features.
        weighted: Whether edges have weights.
        memory: The budget.
        scales: Bytes of it that scales take.

    Raises:
        ArgumentError: The budget does not hold one column.
    """
    size = x.wide.itemsize
    given, memory = memory, memory - scales
    column = (graph.num_src + 1) * size  # and what is carried from one piece of a row to the next
    columns = _columns(max(x.columns, 1), int(memory * _PANEL) // column, _LINE_BYTES // size)
    piece = max(min(int(memory * _PIECES), most_bytes(x)), 4096)
    rest = memory - piece - columns * column
    per_edge = _EDGE_BYTES + (_WEIGHT_BYTES if weighted else 0)
    # A row's result, the same turned round for the file, and the pointers.
    per_row = 2 * columns * size + 24
    if columns < 1 or rest < 3 * (per_edge + per_row):
        need = int(column / _PANEL) + 8192 + scales
        raise ArgumentError(
            f"memory: {given} bytes do not hold one column of {graph.num_src} sources; {need} are needed."
        )
    return Tiling(columns, rest // 3 // per_edge, rest // 3 // per_row, piece, rest // 3)


def _columns(columns: int, most: int, line: int) -> int:
    """Of a panel of ``most`` columns at most: all panels alike, and rows that are whole lines where one fits.

    A row that straddles lines costs more than a further panel.
    """
    if most < 1:
        return 0
    if most >= columns:
        return columns
    unit = line if most >= line else 1
    panels = -(-columns // (most - most % unit))
    return -(-columns // (panels * unit)) * unit
