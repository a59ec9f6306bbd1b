"""How many bytes sums and attention move over windows of 16 rows; see :mod:`benchmarks.gpu.floors`.

A gathered row is read once for every column of a window, of which there are C, at most as many as edges. A
column takes 4 bytes for its source and 2 for its rows; where something goes with an edge, 4 more, and 4 for
every edge's number. Attention reads all of these once for each head.
"""

from benchmarks.gpu.attention_floors import AttentionShape
from benchmarks.gpu.floors import Floor, Shape

_COLUMN = 4 + 2
_FIRST_EDGE = 4
_NUMBER = 4
_ROW_SLOT = 4
_SOFTMAX = 2 * 4


def block_sum_floor(shape: Shape, columns: int) -> Floor:
    """Sum and mean: ``C (6 + F s) + rows (4 + F s)``, and with weights ``4 C + E e`` more.

    Args:
        shape: With ``per_edge`` for a weight and the edge's number.
        columns: C, of the direction.
    """
    row = shape.width * shape.itemsize
    fixed = columns * (_COLUMN + (_FIRST_EDGE if shape.per_edge else 0))
    fixed += shape.edges * shape.per_edge + shape.rows * (_ROW_SLOT + row)
    return Floor(fixed + columns * row, fixed + shape.cols * row)


def block_attention_floor(shape: AttentionShape, columns: int, dropout: bool = False) -> Floor:
    """Forward: ``C (6 H + 2 F s) + Nd (2 F s + 12 H)``, and with dropout ``4 H (C + E)`` more."""
    fixed = _indices(shape, columns, dropout) + shape.num_dst * (
        2 * shape.row + (_ROW_SLOT + _SOFTMAX) * shape.heads
    )
    return Floor(fixed + columns * 2 * shape.row, fixed + shape.num_src * 2 * shape.row)


def block_attention_grad_floor(
    shape: AttentionShape, columns: int, turned_columns: int, dropout: bool = False
) -> Floor:
    """Backward, all gradients: a sweep over the windows of either direction.

    ``C (6 H + 2 F s) + C' (14 H + 2 F s) + Nd (4 F s + 20 H) + Ns (4 F s + 4 H)``, and with dropout
    ``4 H (C + C' + 2 E)`` more.

    Args:
        shape: The operands.
        columns: C, of the graph.
        turned_columns: C', of the transposed graph.
        dropout: Whether edges' numbers are read.
    """
    of_rows = shape.num_dst * (4 * shape.row + (_ROW_SLOT + 2 * _SOFTMAX) * shape.heads)
    of_rows += shape.num_src * (4 * shape.row + _ROW_SLOT * shape.heads)
    fixed = _indices(shape, columns, dropout) + _indices(shape, turned_columns, dropout) + of_rows
    gathered = 2 * shape.row + _SOFTMAX * shape.heads
    return Floor(
        fixed + columns * 2 * shape.row + turned_columns * gathered,
        fixed + shape.num_src * 2 * shape.row + shape.num_dst * gathered,
    )


def _indices(shape: AttentionShape, columns: int, dropout: bool) -> int:
    numbers = _FIRST_EDGE * columns + _NUMBER * shape.edges if dropout else 0
    return shape.heads * (_COLUMN * columns + numbers)
