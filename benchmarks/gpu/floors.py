"""How many bytes an operator has to move: what its times are held against.

"No reuse" takes every gathered row from memory; "compulsory" takes every array once, as an unlimited cache
would have it. The truth lies between. An index takes 4 bytes; ``perm``, the caller's number of an edge, is
read where something per edge is read or written and the graph's order is another.
"""

from dataclasses import dataclass

_INDEX = 4
# Of a column's or an edge's position, where max and min are differentiated.
_MARK = 2


@dataclass(frozen=True, slots=True)
class Floor:
    """Bytes.

    Attributes:
        no_reuse: Every gathered row counted as often as it is gathered.
        compulsory: Every array counted once.
    """

    no_reuse: int
    compulsory: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What the formulas look at.

    Attributes:
        rows: Rows of the result; in backward passes those of the transposed graph.
        cols: Rows that are gathered from.
        edges: E.
        width: F, of all heads together.
        itemsize: Bytes of a feature.
        accumulator: Bytes of a number that is added up: 4, or 8 for float64.
        per_edge: Bytes that go with an edge besides its index: weights, and ``perm`` where it is read.
    """

    rows: int
    cols: int
    edges: int
    width: int
    itemsize: int
    accumulator: int = 4
    per_edge: int = 0


def sum_floor(shape: Shape) -> Floor:
    """Sum and mean; the gradient to x with rows and columns exchanged.

    No reuse: ``E (4 + F s + e) + rows (4 + F s)``.
    """
    row = shape.width * shape.itemsize
    fixed = shape.edges * (_INDEX + shape.per_edge) + shape.rows * (_INDEX + row)
    return Floor(fixed + shape.edges * row, fixed + shape.cols * row)


def extremum_floor(shape: Shape) -> Floor:
    """Max and min, with the number of ties that the gradient needs: ``rows F a`` more than a sum."""
    ties = shape.rows * shape.width * shape.accumulator
    plain = sum_floor(shape)
    return Floor(plain.no_reuse + ties, plain.compulsory + ties)


def extremum_grad_floor(shape: Shape) -> Floor:
    """The gradient of max and min to x, where nothing ties: a mark a column is gathered.

    A mark has 2 bytes, of an element as of an edge; the share of an element is gathered by one edge. Before,
    a pass over the destinations (``cols``) reads gradient, saved positions and extrema, and writes shares and
    marks. No reuse: ``E (4 + 2 + 2 F + e) + cols F (2 a + s + a + 2 + a) + rows (4 + F s + F a)``.
    """
    both = shape.width * (shape.itemsize + shape.accumulator)
    made = shape.cols * shape.width * (4 * shape.accumulator + shape.itemsize + _MARK)
    fixed = shape.edges * (_INDEX + _MARK + shape.per_edge) + made + shape.rows * (_INDEX + both)
    marks = shape.width * _MARK
    return Floor(fixed + shape.edges * marks, fixed + shape.cols * marks)


def sddmm_floor(shape: Shape, heads: int, result_bytes: int) -> Floor:
    """Dot products: ``E (4 + F s + H r + e) + rows (4 + F s)``, where a number of the result has r bytes."""
    plain = sum_floor(shape)
    written = shape.edges * heads * result_bytes
    return Floor(plain.no_reuse + written, plain.compulsory + written)
