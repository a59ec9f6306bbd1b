"""Sums over edges that are weighed by both their ends."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph


class Fusedmm(NamedTuple):
    """Each edge's message times its weight, summed over each row; x = dst[i], y = src[j].

    Attributes:
        dst: [num_dst, F].
        src: [num_src, F], of the same dtype.
        graph: Number of the graph.
        edges: E.
        rule: "dot": ``factor * x . y`` times y; "sigmoid": its sigmoid times y; "tdist":
            ``1 / (1 + factor * |x - y|^2)`` times x - y.
        factor: See ``rule``.
        backend: Name of the backend; empty means the best that can.

    Returns:
        [num_dst, F].
    """

    dst: Tensor
    src: Tensor
    graph: int
    edges: int
    rule: str
    factor: float
    backend: str

    @classmethod
    def of(
        cls, graph: Graph, *, dst: Tensor, src: Tensor, rule: str, factor: float = 1.0, backend: str = ""
    ) -> "Fusedmm":
        """A call on a graph that is at hand."""
        return cls(
            dst=dst,
            src=src,
            graph=graph.number,
            edges=graph.num_edges,
            rule=rule,
            factor=factor,
            backend=backend,
        )


class FusedmmGradients(NamedTuple):
    """Gradients to the operands of :class:`Fusedmm`; None where not wanted."""

    dst: Tensor | None = None
    src: Tensor | None = None
