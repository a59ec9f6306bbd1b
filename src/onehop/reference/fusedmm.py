"""Sums over edges that are weighed by both their ends: their call, and naive ``onehop.fusedmm``."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph
from onehop.reference.calls import edges_of, wide


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
    factor: float = 1.0
    backend: str = ""


class FusedmmGradients(NamedTuple):
    """Gradients to the operands of :class:`Fusedmm`; None where not wanted."""

    dst: Tensor | None = None
    src: Tensor | None = None


def run_fusedmm(graph: Graph, call: Fusedmm) -> Tensor:
    """Runs a call by the formula."""
    edge_index = edges_of(graph, call.src)
    return fusedmm(edge_index, wide(call.dst), wide(call.src), call.rule, call.factor).to(call.src.dtype)


def fusedmm(edge_index: Tensor, dst: Tensor, src: Tensor, kernel: str, scale: float = 1.0) -> Tensor:
    """A message for every edge, weighted by its ends, summed over each destination.

    Args:
        edge_index: [2, E], sources above destinations.
        dst: [num_dst, F].
        src: [num_src, F].
        kernel: "sigmoid": ``sigmoid(scale * dst . src) * src``; "tdist":
            ``(dst - src) / (1 + scale * |dst - src|^2)``; "dot": ``scale * (dst . src) * src``.
        scale: Factor in the formulas above.

    Returns:
        [num_dst, F].
    """
    source, target = edge_index[0].long(), edge_index[1].long()
    x, y = dst.index_select(0, target), src.index_select(0, source)
    if kernel == "tdist":
        difference = x - y
        message = difference / (1 + scale * difference.square().sum(1, keepdim=True))
    else:
        score = scale * (x * y).sum(1, keepdim=True)
        message = (score.sigmoid() if kernel == "sigmoid" else score) * y
    return dst.new_zeros(dst.shape).index_add(0, target, message)
