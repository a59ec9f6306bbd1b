"""Operands of attention operators, as backends and kernels get them."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Rule = Literal["gat", "gatv2", "dot"]


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """One call. Features have one dtype; operands marked "acc" have its accumulator's.

    Scores, with j an edge's source and i its destination:

    - "gat": leaky_relu(key[j] + query[i] + edge)
    - "gatv2": att . leaky_relu(value[j] + query[i] + edge)
    - "dot": factor * query[i] . (key[j] + edge); the edge's features are added to value[j] too

    Attributes:
        rule: The formula of the scores.
        value: [num_src, H, V].
        key: gat: acc [num_src, H]; dot: [num_src, H, D]; gatv2: None.
        query: gat: acc [num_dst, H]; else [num_dst, H, D].
        att: gatv2: acc [H, D], else None.
        edge: gat: acc [E, H]; else [E, H, D], or [E, K] with ``edge_weight``; None means 0.
        edge_weight: acc [H * D, K], which projects ``edge``, or None.
        mask: acc [E, H], multiplies the softmaxed weights; None means 1.
        factor: The leaky relu's slope, or the scale of dot products.
        dropout: Probability of dropping a weight.
        seed: Seed of the dropout, in [0, 2^63).
    """

    rule: Rule
    value: Tensor
    key: Tensor | None
    query: Tensor
    att: Tensor | None
    edge: Tensor | None
    edge_weight: Tensor | None
    mask: Tensor | None
    factor: float
    dropout: float
    seed: int

    @property
    def heads(self) -> int:
        """Number of heads, H."""
        return self.value.size(1)

    @property
    def masks_returned_weights(self) -> bool:
        """Return whether the returned weights include dropout and mask, as in PyG's layers."""
        return self.rule != "dot"


@dataclass(frozen=True, slots=True)
class AttentionGrads:
    """Gradients, each of its operand's shape and dtype; None where not requested."""

    value: Tensor | None
    key: Tensor | None
    query: Tensor | None
    att: Tensor | None
    edge: Tensor | None
    edge_weight: Tensor | None
