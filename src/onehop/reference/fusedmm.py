"""Sums over edges weighted by both of their ends: their call, and a naive ``onehop.fusedmm``."""

from typing import NamedTuple

from torch import Tensor

from onehop.graph import Graph
from onehop.reference.calls import edges_of, wide


class Fusedmm(NamedTuple):
    """Each edge's message times its weight, summed over each row, where x = dst[i] and y = src[j].

    Attributes:
        dst: [num_dst, F].
        src: [num_src, F], of the same dtype.
        graph: Number of the graph.
        edges: E.
        rule: "dot": ``factor * x . y`` times y; "sigmoid": its sigmoid times y; "tdist":
            ``1 / (1 + factor * |x - y|^2)`` times x - y.
        factor: See ``rule``.
        backend: Name of the backend; empty means the best backend that can run the call.

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
    """Gradients with respect to the operands of :class:`Fusedmm`; None if not requested."""

    dst: Tensor | None = None
    src: Tensor | None = None


def run_fusedmm(graph: Graph, call: Fusedmm) -> Tensor:
    """Run a call by its formula."""
    edge_index = edges_of(graph, call.src)
    return fusedmm(edge_index, wide(call.dst), wide(call.src), call.rule, call.factor).to(call.src.dtype)


def fusedmm(edge_index: Tensor, dst: Tensor, src: Tensor, kernel: str, scale: float = 1.0) -> Tensor:
    """Compute a message for every edge, weighted by its ends, and sum the messages over each destination.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
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
