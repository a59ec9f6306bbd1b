"""How many bytes attention has to move, forward and backward; see :mod:`benchmarks.gpu.floors`.

Only what is read or written for every edge or node is counted; ``att`` and its like are not. Per edge, a
sweep reads its index, and what it gathers. The sweep over sources gathers two numbers a head besides rows:
the logarithm of the sum of exponentials, and grad . out.
"""

from dataclasses import dataclass

from benchmarks.gpu.floors import Floor
from onehop.calls import Rule

_INDEX = 4


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
