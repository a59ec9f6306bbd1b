"""Max and min: ``onehop::extremum``, whose gradient is split among tied edges, and its gradient operator."""

from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from onehop.calls import Extremum, ExtremumGrad, ExtremumGradients, accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph, by_number
from onehop.ops.arg_extremum import arg_extremum, check_one_winner
from onehop.ops.checks import check_features, check_graph
from onehop.ops.factors import check_factors, factor_or_term, promoted
from onehop.ops.gradients import GradientOperator, by_formula
from onehop.ops.library import Context, Operator, run
from onehop.ops.signals import on_signals
from onehop.reference.extremum import run_extremum

Extreme = Literal["max", "min"]
Ties = Literal["share", "first", "last"]
TIES: tuple[Ties, ...] = get_args(Ties)


def extremum(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None = None,
    reduce: Extreme = "max",
    ties: Ties = "share",
    *,
    node_dim: int = 0,
    backend: str | None = None,
) -> Tensor:
    """Take the largest or smallest message of each destination, for each column.

    Messages are ``weight[e] * x[j]``. ``ties`` decides which edges get the gradient of an entry if several
    edges tie, and how NaN is treated.

    Args:
        graph: The graph.
        x: [num_src, F] or [num_src, H, D], float32, float64, bfloat16 or float16; for signals with additional
            leading dimensions, see ``node_dim``. Differentiable.
        weight: [E], in the caller's edge order; or [E, H] for x of shape [num_src, H, D] or, for signals,
            [..., num_src, H, D]; None means 1. Differentiable.
        reduce: "max" or "min".
        ties: "share" splits the gradient evenly among the edges that tie, as ``onehop.aggregate`` does. NaN
            wins over every number, and destinations without edges get 0. "first" and "last" give the
            gradient to the tied edge with the lowest or the highest number. They skip NaN, and if no edge
            wins, the entry is minus infinity (plus infinity for min) and has no gradient. They require
            float32 or float64, a weight of the dtype of ``x``, and fewer than 2^31 edges.
        node_dim: The dimension of ``x`` that indexes the nodes; earlier dimensions are signals on the same
            graph, as in ``onehop.aggregate``.
        backend: Name of the backend; None means the best available one.

    Returns:
        [num_dst, F] or [num_dst, H, D], of the promoted dtype of x and weight; for signals a view with the
        signals' dimensions first.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, ``reduce`` or ``ties`` is unknown, or ``x``
            has no dimension ``node_dim``.
        BackendError: No backend runs on such tensors.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1], [2, 2]]))  # 0->2, 1->2
        >>> x = torch.tensor([[7.0], [7.0], [3.0]], requires_grad=True)  # the rows of 0 and 1 tie
        >>> onehop.extremum(graph, x)[2].item()
        7.0
        >>> torch.autograd.grad(onehop.extremum(graph, x)[2], x)[0].flatten().tolist()
        [0.5, 0.5, 0.0]
        >>> torch.autograd.grad(onehop.extremum(graph, x, ties="last")[2], x)[0].flatten().tolist()
        [0.0, 1.0, 0.0]
    """
    check_graph(graph)
    if node_dim != 0:
        of_rows = partial(extremum, graph, weight=weight, reduce=reduce, ties=ties, backend=backend)
        return on_signals(graph, of_rows, x, weight, node_dim)
    check_features("x", x, graph.num_src, "sources")
    if reduce not in ("max", "min"):
        raise ArgumentError(f"reduce: expected max or min, got {reduce!r}.")
    if ties not in TIES:
        raise ArgumentError(f"ties: expected one of {', '.join(TIES)}, got {ties!r}.")
    check_factors(graph, x, weight, None, None)
    if ties != "share":
        check_one_winner(graph, x, weight, ties)
        return arg_extremum(graph, x, weight, reduce, ties == "last", backend or "")[0]
    x, weight, _, _, widen = promoted(x, weight, None, None)
    out = extremum_of_rows(graph, x.flatten(1), weight, reduce, widen=widen, backend=backend or "")
    return out.reshape(out.size(0), *x.shape[1:])


def extremum_of_rows(
    graph: Graph,
    x: Tensor,
    weight: Tensor | None,
    reduce: str,
    scales: tuple[Tensor | None, Tensor | None] = (None, None),
    multiply: str = "mul",
    *,
    widen: bool,
    backend: str,
) -> Tensor:
    """Takes the extremum of rows [num_src, F]; with a weight [E, H], head by head.

    The weight and the scales of sources and destinations have the accumulator's dtype.
    """
    dtype, (src_scale, dst_scale) = torch.float32 if widen else x.dtype, scales
    weight, adds = (weight, False) if multiply == "mul" else factor_or_term(multiply, weight)
    if src_scale is not None:
        x = x * src_scale.unsqueeze(-1)
    parts: tuple[Tensor, ...] = (x,)
    weights: tuple[Tensor | None, ...] = (weight,)
    if weight is not None and weight.dim() == 2:
        parts, weights = x.tensor_split(weight.size(1), 1), weight.unbind(1)
    extrema: list[Tensor] = []
    for part, factor in zip(parts, weights, strict=True):
        call = Extremum(
            x=part,
            weight=factor,
            graph=graph.number,
            rows=graph.num_dst,
            edges=graph.num_edges,
            reduce=reduce,
            adds=adds,
            widen=widen,
            backend=backend,
        )
        extrema.append(EXTREMUM(call, graph)[0])
    out = extrema[0] if len(extrema) == 1 else torch.cat(extrema, 1)
    if dst_scale is not None:
        out = out * dst_scale.unsqueeze(-1)
    return out.to(dtype)


class _Extremum(Operator[Extremum]):
    call = Extremum
    results = 2
    asks_more = True
    edge_fields = ("weight",)
    gradients_of = ExtremumGradients

    def fake(self, call: Extremum) -> tuple[Tensor, Tensor]:
        shape, acc = (call.rows, call.x.size(1)), accumulator(call.x.dtype)
        out = call.x.new_empty(shape, dtype=acc if call.widen else call.x.dtype)
        return out, call.x.new_empty(shape, dtype=acc) if call.with_ties else out.new_empty(0)

    def recorded(self, call: Extremum) -> Extremum:
        return call._replace(with_ties=True)

    def saved(
        self, call: Extremum, results: Any, needs: tuple[str, ...]
    ) -> tuple[Extremum, tuple[Tensor, ...]]:
        return call, results

    def gradients(self, context: Context[Extremum], *grads: Tensor | None) -> ExtremumGradients:
        call, (extremum, ties), grad = context.call, context.results, grads[0]
        assert grad is not None
        if torch.is_grad_enabled():
            return ExtremumGradients(**by_formula(_formula, call, context.needs, grads[:1]))
        needs = [name in context.needs for name in ExtremumGradients._fields]
        gradients = run(ExtremumGrad(call=call, extremum=extremum, ties=ties, grad=grad, wanted=needs))
        return ExtremumGradients(*gradients)


class _ExtremumGrad(GradientOperator[ExtremumGrad]):
    call = ExtremumGrad
    of = ExtremumGradients
    widens = True


def _formula(call: Extremum) -> Tensor:
    return run_extremum(by_number(call.graph), call._replace(with_ties=False))[0]


EXTREMUM = _Extremum()
EXTREMUM_GRAD = _ExtremumGrad()
