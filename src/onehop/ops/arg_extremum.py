"""Max and min whose gradient goes to one edge for each destination and column, as in DGL.

:func:`onehop.extremum` is the public function for both kinds of gradients, with all checks. For the backward
pass, the winner of each entry is kept, in 32 bits.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import ArgExtremum, ArgExtremumGrad, ArgExtremumGradients
from onehop.errors import ArgumentError
from onehop.graph import Graph, by_number
from onehop.ops.gradients import GradientOperator
from onehop.ops.library import Context, Operator, run

# The positions of edges are kept in 32 bits.
MOST_EDGES = 2**31 - 1
_DTYPES = (torch.float32, torch.float64)


def arg_extremum(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: str = "max",
    last: bool = False,
    backend: str = "",
) -> tuple[Tensor, Tensor]:
    """Takes the max or min over each destination's edges and skips NaN; the operands were checked.

    Args:
        graph: The graph, of at most :data:`MOST_EDGES` edges.
        x: [num_src, F], or [num_src, H, D], float32 or float64.
        weight: [E], or [E, H] for x with heads, of the same dtype; None means 1.
        reduce: "max" or "min".
        last: Whether the tied edge with the highest number wins, instead of the lowest. If the lowest wins, a
            message must also be larger than minus infinity (for min, smaller than infinity).
        backend: Name of the backend; empty means the best available one.

    Returns:
        The extrema, [num_dst, F] or [num_dst, H, D], and the position of each winning edge in the graph's
        order, int32, of the same shape. If no edge wins, the extremum is minus infinity (plus infinity for
        min) and has no gradient, and the position is -1.
    """
    flat = x.reshape(x.size(0), -1) if x.numel() else x.reshape(x.size(0), x.shape[1:].numel())
    call = ArgExtremum(
        x=flat,
        weight=weight,
        graph=graph.number,
        rows=graph.num_dst,
        reduce=reduce,
        last=last,
        backend=backend,
    )
    out, winner = (each.view(graph.num_dst, *x.shape[1:]) for each in ARG_EXTREMUM(call, graph))
    return out, winner


def check_one_winner(graph: Graph, x: Tensor, weight: Tensor | None, ties: str) -> None:
    """Raises unless :func:`arg_extremum` can run on features and a weight that fit the graph."""
    if x.dtype not in _DTYPES or (weight is not None and weight.dtype is not x.dtype):
        got = x.dtype if weight is None else f"{x.dtype} and a weight of {weight.dtype}"
        raise ArgumentError(
            f'x: with ties="{ties}", expected float32 or float64, and a weight of the same dtype, got {got}; '
            'convert them, or take ties="share".'
        )
    if graph.num_edges > MOST_EDGES:
        raise ArgumentError(
            f'graph: with ties="{ties}", expected at most {MOST_EDGES} edges, got {graph.num_edges}; '
            'take ties="share".'
        )


class _ArgExtremum(Operator[ArgExtremum]):
    call = ArgExtremum
    edge_fields = ("weight",)
    results = 2
    gradients_of = ArgExtremumGradients

    def fake(self, call: ArgExtremum) -> tuple[Tensor, Tensor]:
        out = call.x.new_empty((call.rows, call.x.size(1)))
        return out, torch.empty_like(out, dtype=torch.int32)

    def saved(
        self, call: ArgExtremum, results: Any, needs: tuple[str, ...]
    ) -> tuple[ArgExtremum, tuple[Tensor, ...]]:
        return call, results[1:]

    def gradients(self, context: Context[ArgExtremum], *grads: Tensor | None) -> ArgExtremumGradients:
        call, (winner,), grad = context.call, context.results, grads[0]
        assert grad is not None
        if torch.is_grad_enabled():
            return _differentiable_gradients(call, grad, winner)
        needs = [name in context.needs for name in ArgExtremumGradients._fields]
        gradients = run(ArgExtremumGrad(call=call, winner=winner, grad=grad, wanted=needs))
        return ArgExtremumGradients(*gradients)


class _ArgExtremumGrad(GradientOperator[ArgExtremumGrad]):
    call = ArgExtremumGrad
    of = ArgExtremumGradients


def _differentiable_gradients(call: ArgExtremum, grad: Tensor, winner: Tensor) -> ArgExtremumGradients:
    """Compute the gradients by differentiable torch operations; second derivatives are rare."""
    x, weight = call.x, call.weight
    csr = by_number(call.graph).on(x.device)
    if not csr.edges:
        return ArgExtremumGradients(
            x=torch.zeros_like(x), weight=None if weight is None else torch.zeros_like(weight)
        )
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    wins = winner >= 0
    place = winner.clamp(min=0).long()
    source = csr.col[place].long()
    grad = torch.where(wins, grad, 0)
    if weight is None:
        return ArgExtremumGradients(x=torch.zeros_like(x).scatter_add(0, source, grad))
    edge = place if csr.perm is None else csr.perm[place].long()
    wide = weight.view(-1, heads).repeat_interleave(x.size(1) // heads, 1)
    grad_x = torch.zeros_like(x).scatter_add(0, source, wide.gather(0, edge) * grad)
    of_edges = torch.zeros_like(wide).scatter_add(0, edge, x.gather(0, source) * grad)
    grad_weight = of_edges.view(-1, heads, x.size(1) // heads).sum(2).view_as(weight)
    return ArgExtremumGradients(x=grad_x, weight=grad_weight)


ARG_EXTREMUM = _ArgExtremum()
ARG_EXTREMUM_GRAD = _ArgExtremumGrad()
