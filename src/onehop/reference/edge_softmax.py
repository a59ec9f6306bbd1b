"""Softmax over the edges of every destination: its calls, and naive ``onehop.edge_softmax``."""

from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.reference.calls import edges_of, wide


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
    backend: str = ""


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
    backend: str = ""


class EdgeSoftmaxGradGradients(NamedTuple):
    """Gradients to the operands of :class:`EdgeSoftmaxGrad`; None where not wanted."""

    softmax: Tensor | None = None
    grad: Tensor | None = None


def run_edge_softmax(graph: Graph, call: EdgeSoftmax) -> Tensor:
    """Runs a call by the formula."""
    out = edge_softmax(edges_of(graph, call.scores), wide(call.scores), graph.num_dst)
    return out.to(call.scores.dtype)


def run_edge_softmax_grad(graph: Graph, call: EdgeSoftmaxGrad) -> Tensor:
    """Runs a call by the formula: each share times its gradient, less its part of the row's sum of these."""
    target = edges_of(graph, call.softmax)[1]
    product = wide(call.softmax) * call.grad
    total = product.new_zeros(graph.num_dst, call.softmax.size(1)).index_add(0, target, product)
    return (product - call.softmax * total.index_select(0, target)).to(call.softmax.dtype)


def edge_softmax(edge_index: Tensor, scores: Tensor, num_dst: int) -> Tensor:
    """Softmax over the edges of every destination, as ``torch_geometric.utils.softmax`` computes it.

    Args:
        edge_index: [2, E], sources above destinations.
        scores: [E] or [E, H].
        num_dst: Number of destinations.

    Returns:
        The shape of ``scores``: exp(s - max) / (sum of exp(s - max) + 1e-16). A row with only -inf, and one
        with a NaN or +inf, becomes NaN.
    """
    target = edge_index[1].long()
    index = target if scores.dim() == 1 else target.unsqueeze(-1).expand_as(scores)
    zeros = scores.new_zeros(num_dst, *scores.shape[1:])
    largest = zeros.scatter_reduce(0, index, scores.detach(), reduce="amax", include_self=False)
    power = torch.exp(scores - largest.index_select(0, target))
    total = zeros.scatter_add(0, index, power) + 1e-16
    return power / total.index_select(0, target)
