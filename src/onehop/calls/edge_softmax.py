"""Softmax over the edges of every destination."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class EdgeSoftmax(NamedTuple):
    """Softmax over every destination's edges, for each head.

    Attributes:
        scores: [E, H], in the caller's edge order.
        graph: Number of the graph.
        sources: num_src.
        rows: num_dst.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [E, H], of the dtype of ``scores``.
    """

    scores: Tensor
    graph: int
    sources: int
    rows: int
    backend: str

    @classmethod
    def of(cls, graph: Graph, scores: Tensor, *, backend: str = "") -> "EdgeSoftmax":
        """A call on a graph that is at hand."""
        return cls(
            scores=scores, graph=graph.number, sources=graph.num_src, rows=graph.num_dst, backend=backend
        )


class EdgeSoftmaxGradients(NamedTuple):
    """The gradient to the operand of :class:`EdgeSoftmax`; None where not wanted."""

    scores: Tensor | None = None


class EdgeSoftmaxGrad(NamedTuple):
    """The gradient to the scores: ``a * (g - sum of a * g over the row)``.

    Attributes:
        softmax: [E, H], the result a of :class:`EdgeSoftmax`.
        grad: [E, H], the gradient g to it, of the same dtype.
        graph: Number of the graph.
        sources: num_src.
        rows: num_dst.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [E, H], of that dtype.
    """

    softmax: Tensor
    grad: Tensor
    graph: int
    sources: int
    rows: int
    backend: str


class EdgeSoftmaxGradGradients(NamedTuple):
    """Gradients to the operands of :class:`EdgeSoftmaxGrad`; None where not wanted."""

    softmax: Tensor | None = None
    grad: Tensor | None = None
