"""Max and min, whose gradient is split among the edges that tie: their calls, and their formulas."""

from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.reference.aggregate import aggregate
from onehop.reference.calls import accumulator, edges_of, wide


class Extremum(NamedTuple):
    """Max or min over each row's edges, and the number of edges that attain it.

    Attributes:
        x: [num_src, F].
        weight: acc [E], in the caller's edge order; None means 1. "acc" is the accumulator's dtype.
        graph: Number of the graph.
        rows: num_dst.
        edges: E.
        reduce: "max" or "min".
        adds: Whether messages are ``weight + x`` instead of ``weight * x``.
        widen: Return the accumulator's dtype instead of the dtype of ``x``.
        with_ties: Whether to return the numbers of edges too.
        backend: Name of the backend; empty means the best backend that can run the call.

    Returns:
        [rows, F], and acc [rows, F]: how many edges attain the extremum, 0 if it is NaN; an empty tensor
        without ``with_ties``. If a single edge attains it, a backend may return ``-1 - p`` instead of 1,
        where p is the edge's position in its row, for its own gradient to read.
    """

    x: Tensor
    weight: Tensor | None = None
    graph: int = -1
    rows: int = -1
    edges: int = -1
    reduce: str = "max"
    adds: bool = False
    widen: bool = False
    with_ties: bool = False
    backend: str = ""


class ExtremumGrad(NamedTuple):
    """The gradient of :class:`Extremum`, split evenly among the edges that tie.

    Attributes:
        call: The call.
        extremum: The first result of the call.
        ties: The second result of the call, from the backend that computes the gradient.
        grad: [num_dst, F], the gradient with respect to the first result.
        wanted: For each field of :class:`ExtremumGradients`, whether it is requested.

    Returns:
        acc [num_src, F] and acc [E]; empty tensors for gradients that are not requested.
    """

    call: Extremum
    extremum: Tensor
    ties: Tensor
    grad: Tensor
    wanted: list[bool]

    @property
    def graph(self) -> int:
        """Number of the graph."""
        return self.call.graph

    @property
    def backend(self) -> str:
        """Name of the backend; empty means the best backend that can run the call."""
        return self.call.backend


class ExtremumGradients(NamedTuple):
    """Gradients with respect to the operands of :class:`Extremum`; None if not requested."""

    x: Tensor | None = None
    weight: Tensor | None = None


def run_extremum(graph: Graph, call: Extremum) -> tuple[Tensor, Tensor]:
    """Run a call by its formula."""
    edge_index = edges_of(graph, call.x)
    message = _messages(edge_index, call, call.widen)
    every = torch.stack([torch.arange(graph.num_edges, device=call.x.device), edge_index[1]])
    out = aggregate(every, message, graph.num_dst, reduce=call.reduce)
    if not call.with_ties:
        return out, out.new_empty(0)
    hits = (message == out.index_select(0, edge_index[1])).to(accumulator(call.x.dtype))
    return out, aggregate(every, hits, graph.num_dst)


def run_extremum_grad(graph: Graph, grad: ExtremumGrad) -> tuple[Tensor, Tensor]:
    """Run a call by its formula: each edge that ties gets its share of the gradient."""
    call, (for_x, for_weight) = grad.call, grad.wanted
    source, target = edge_index = edges_of(graph, call.x)
    message = _messages(edge_index, call, grad.extremum.dtype != call.x.dtype)
    share = (grad.grad / (grad.ties + (grad.extremum == 0))).index_select(0, target)
    hits = (message == grad.extremum.index_select(0, target)).to(share.dtype) * share
    grad_x = grad_weight = share.new_empty(0)
    if for_x:
        to_x = hits if call.weight is None or call.adds else hits * call.weight.unsqueeze(-1)
        grad_x = share.new_zeros(graph.num_src, call.x.size(1)).index_add(0, source, to_x)
    if for_weight:
        grad_weight = (hits if call.adds else hits * call.x.index_select(0, source)).sum(-1)
    return grad_x, grad_weight


def _messages(edge_index: Tensor, call: Extremum, widen: bool) -> Tensor:
    message = wide(call.x).index_select(0, edge_index[0])
    if call.weight is not None:
        weight = call.weight.unsqueeze(-1)
        message = message + weight if call.adds else message * weight
    return message if widen else message.to(call.x.dtype)
