"""How many bytes an operator has to move: what its times are held against.

"No reuse" takes every gathered row from memory; "compulsory" takes every array once, as an unlimited cache
would have it. The truth lies between. An index takes 4 bytes; ``perm``, the caller's number of an edge, is
read where something per edge is read or written and the graph's order is another.
"""

from dataclasses import dataclass

from onehop.calls import Rule

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


# Attention: only what is read or written for every edge or node is counted; ``att`` and its like are not. For
# each edge, a sweep reads its index, and what it gathers. The sweep over sources gathers two numbers a head
# besides rows: the logarithm of the sum of exponentials, and grad . out.


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What the formulas look at.

    Attributes:
        rule: How scores are made.
        num_src: Sources.
        num_dst: Destinations.
        edges: E.
        heads: H.
        width: D, which is also the values' width.
        itemsize: Bytes of a feature.
        accumulator: Bytes of a number of the softmax, and of a score of "gat".
    """

    rule: Rule
    num_src: int
    num_dst: int
    edges: int
    heads: int
    width: int
    itemsize: int
    accumulator: int = 4

    @property
    def row(self) -> int:
        """Bytes of all heads of a node: F s."""
        return self.heads * self.width * self.itemsize

    @property
    def numbers(self) -> int:
        """Bytes of a number for every head: H a."""
        return self.heads * self.accumulator

    @property
    def source_bytes(self) -> int:
        """Of what a source has: values, and keys where they are others."""
        return self.row + {"gat": self.numbers, "gatv2": 0, "dot": self.row}[self.rule]

    @property
    def query_bytes(self) -> int:
        """Of what a destination has for its scores."""
        return self.numbers if self.rule == "gat" else self.row


def attention_floor(shape: AttentionShape) -> Floor:
    """Forward.

    No reuse: ``E (4 + S) + Nd (Q + F s + 2 H a)``, with the bytes S of a source and Q of a destination.
    """
    own = shape.num_dst * (shape.query_bytes + shape.row + 2 * shape.numbers)
    fixed = shape.edges * _INDEX + own
    return Floor(
        fixed + shape.edges * shape.source_bytes,
        fixed + shape.num_src * shape.source_bytes,
    )


def attention_grad_floor(shape: AttentionShape) -> Floor:
    """Backward, all gradients: a sweep over destinations, then one over sources, without atomics.

    No reuse: ``E (8 + S + Q + F s + 2 H a) + Nd (2 Q + 2 F s + 4 H a) + Ns 2 S``. The rows that an edge
    gathers are three for "gatv2" (its source; its destination and that one's gradient), four for "dot".
    """
    gathered = shape.query_bytes + shape.row + 2 * shape.numbers
    of_rows = shape.num_dst * (2 * shape.query_bytes + 2 * shape.row + 4 * shape.numbers)
    fixed = 2 * shape.edges * _INDEX + of_rows + shape.num_src * 2 * shape.source_bytes
    return Floor(
        fixed + shape.edges * (shape.source_bytes + gathered),
        fixed + shape.num_src * shape.source_bytes + shape.num_dst * gathered,
    )
