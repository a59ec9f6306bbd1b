"""Attention over each destination's edges: one statement of gat, gatv2 and attention."""

from typing import Literal, NamedTuple

from torch import Tensor

from onehop.graph import Graph

Rule = Literal["gat", "gatv2", "dot"]


class Attention(NamedTuple):
    """Weighted sums of sources' values, with weights that are softmaxed scores.

    Scores, with j an edge's source and i its destination:

    - "gat": leaky_relu(key[j] + query[i] + edge)
    - "gatv2": att . leaky_relu(value[j] + query[i] + edge)
    - "dot": factor * query[i] . (key[j] + edge); the edge's features are added to value[j] too

    Features have one dtype; what is marked "acc" has its accumulator's.

    Attributes:
        value: [num_src, H, V].
        key: gat: acc [num_src, H]; dot: [num_src, H, D]; gatv2: None.
        query: gat: acc [num_dst, H]; else [num_dst, H, D].
        att: gatv2: acc [H, D], else None.
        edge: gat: acc [E, H]; else [E, H, D], or [E, K] with ``edge_weight``; None means 0.
        edge_weight: acc [H * D, K], which projects ``edge``, or None.
        mask: acc [E, H], multiplies the softmaxed weights; None means 1.
        seeds: int64 [1], the seed of the dropout, in [0, 2^63): a tensor, since a number would be frozen into
            a compiled program. None where there is no dropout.
        graph: Number of the graph.
        rows: num_dst.
        edges: E.
        rule: How scores are made.
        factor: The leaky relu's slope, or the scale of dot products.
        dropout: Probability of dropping a weight.
        with_weights: Return the weights too.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [num_dst, H, V]; acc [num_dst, 2, H], for each row the largest score, and one divided by the sum of
        the exponentials of scores less that; and acc [E, H], the weights, an empty tensor without
        ``with_weights``.
    """

    value: Tensor
    key: Tensor | None
    query: Tensor
    att: Tensor | None
    edge: Tensor | None
    edge_weight: Tensor | None
    mask: Tensor | None
    seeds: Tensor | None
    graph: int
    rows: int
    edges: int
    rule: str
    factor: float
    dropout: float
    with_weights: bool
    backend: str

    @classmethod
    def of(
        cls,
        graph: Graph,
        rule: Rule,
        *,
        value: Tensor,
        query: Tensor,
        key: Tensor | None = None,
        att: Tensor | None = None,
        edge: Tensor | None = None,
        edge_weight: Tensor | None = None,
        mask: Tensor | None = None,
        seeds: Tensor | None = None,
        factor: float,
        dropout: float = 0.0,
        with_weights: bool = False,
        backend: str = "",
    ) -> "Attention":
        """A call on a graph that is at hand."""
        return cls(
            value=value,
            key=key,
            query=query,
            att=att,
            edge=edge,
            edge_weight=edge_weight,
            mask=mask,
            seeds=seeds,
            graph=graph.number,
            rows=graph.num_dst,
            edges=graph.num_edges,
            rule=rule,
            factor=factor,
            dropout=dropout,
            with_weights=with_weights,
            backend=backend,
        )

    @property
    def heads(self) -> int:
        """H."""
        return self.value.size(1)

    @property
    def seed(self) -> int:
        """The seed of the dropout; 0 where there is none."""
        return 0 if self.seeds is None else int(self.seeds)

    @property
    def masks_returned_weights(self) -> bool:
        """Return whether returned weights are those after dropout and mask, as in PyG's layers."""
        return self.rule != "dot"


class AttentionGradients(NamedTuple):
    """Gradients to the operands of :class:`Attention`, each of its shape and dtype; None where not wanted."""

    value: Tensor | None = None
    key: Tensor | None = None
    query: Tensor | None = None
    att: Tensor | None = None
    edge: Tensor | None = None
    edge_weight: Tensor | None = None


class AttentionGrad(NamedTuple):
    """The gradients of :class:`Attention`.

    Attributes:
        call: The call.
        out: Its first result.
        softmax: Its second result.
        weights: Its third result; None without ``grad_weights``.
        grad: [num_dst, H, V], to its first result.
        grad_weights: [E, H], to its third result, or None.
        wanted: For each field of :class:`AttentionGradients`, whether it is wanted.

    Returns:
        A tensor for each field of :class:`AttentionGradients`; an empty one where not wanted.
    """

    call: Attention
    out: Tensor
    softmax: Tensor
    weights: Tensor | None
    grad: Tensor
    grad_weights: Tensor | None
    wanted: list[bool]

    @classmethod
    def of(
        cls,
        call: Attention,
        results: tuple[Tensor, ...],
        grad: Tensor,
        *,
        grad_weights: Tensor | None = None,
        wanted: list[bool] | None = None,
    ) -> "AttentionGrad":
        """The gradients of a call from what it returned; ``wanted`` None means of every operand it has."""
        out, softmax, weights = results
        if wanted is None:
            wanted = [getattr(call, name) is not None for name in AttentionGradients._fields]
        return cls(
            call=call,
            out=out,
            softmax=softmax,
            weights=weights if call.with_weights else None,
            grad=grad,
            grad_weights=grad_weights,
            wanted=wanted,
        )

    @property
    def graph(self) -> int:
        """Number of the graph."""
        return self.call.graph

    @property
    def backend(self) -> str:
        """Name of the backend; empty means the best that can."""
        return self.call.backend
