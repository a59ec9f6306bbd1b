"""Softmax over the edges of every destination: its calls, and a naive ``onehop.edge_softmax``."""

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
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [E, H], in the dtype of ``scores``.
    """

    scores: Tensor
    graph: int
    sources: int
    rows: int
    backend: str = ""


class EdgeSoftmaxGradients(NamedTuple):
    """The gradient with respect to the operand of :class:`EdgeSoftmax`; None if not requested."""

    scores: Tensor | None = None


class EdgeSoftmaxGrad(NamedTuple):
    """The gradient with respect to the scores: ``a * (g - sum of a * g over the row)``.

    Attributes:
        softmax: [E, H], the result a of :class:`EdgeSoftmax`.
        grad: [E, H], the gradient g with respect to a, in the same dtype.
        graph: Number of the graph.
        sources: num_src.
        rows: num_dst.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [E, H], in the dtype of ``softmax``.
    """

    softmax: Tensor
    grad: Tensor
    graph: int
    sources: int
    rows: int
    backend: str = ""


class EdgeSoftmaxGradGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`EdgeSoftmaxGrad`; None if not requested."""

    softmax: Tensor | None = None
    grad: Tensor | None = None


def run_edge_softmax(graph: Graph, call: EdgeSoftmax) -> Tensor:
    """Run a call by its formula."""
    out = edge_softmax(edges_of(graph, call.scores), wide(call.scores), graph.num_dst)
    return out.to(call.scores.dtype)


def run_edge_softmax_grad(graph: Graph, call: EdgeSoftmaxGrad) -> Tensor:
    """Run a call by its formula: weight times gradient, minus the weight times the row's sum of these."""
    target = edges_of(graph, call.softmax)[1]
    product = wide(call.softmax) * call.grad
    total = product.new_zeros(graph.num_dst, call.softmax.size(1)).index_add(0, target, product)
    return (product - call.softmax * total.index_select(0, target)).to(call.softmax.dtype)


def edge_softmax(edge_index: Tensor, scores: Tensor, num_dst: int) -> Tensor:
    """Compute softmax over the edges of every destination, as ``torch_geometric.utils.softmax`` does.

    Args:
        edge_index: [2, E], with sources in row 0 and destinations in row 1.
        scores: [E] or [E, H].
        num_dst: Number of destinations.

    Returns:
        A tensor of the shape of ``scores``: exp(s - max) / (sum of exp(s - max) + 1e-16). A row becomes NaN
        if it has only -inf, or if it has a NaN or +inf.
    """
    target = edge_index[1].long()
    index = target if scores.dim() == 1 else target.unsqueeze(-1).expand_as(scores)
    zeros = scores.new_zeros(num_dst, *scores.shape[1:])
    largest = zeros.scatter_reduce(0, index, scores.detach(), reduce="amax", include_self=False)
    power = torch.exp(scores - largest.index_select(0, target))
    total = zeros.scatter_add(0, index, power) + 1e-16
    return power / total.index_select(0, target)
