"""Max and min: ``onehop::extremum`` and its gradient, ``onehop::extremum_grad``."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops.library import Function, Operator, keep_alive, needs_grad
from onehop.reference.aggregate import aggregate as reference_aggregate

SCHEMA = (
    "extremum(Tensor x, Tensor? weight, SymInt graph, SymInt rows, str reduce, bool widen, bool with_ties, "
    "str backend, bool adds=False) -> (Tensor, Tensor)"
)
GRAD_SCHEMA = (
    "extremum_grad(Tensor grad, Tensor x, Tensor? weight, Tensor extremum, Tensor ties, SymInt graph, "
    "SymInt edges, bool for_x, bool for_weight, str backend, bool adds=False) -> (Tensor, Tensor)"
)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _kernel(
    x: Tensor,
    weight: Tensor | None,
    graph: int,
    rows: int,
    reduce: str,
    widen: bool,
    with_ties: bool,
    backend: str,
    adds: bool = False,
) -> tuple[Tensor, Tensor]:
    runner = backend_for(x.device, x.dtype, backend)
    return runner.extremum(by_number(graph), x, weight, reduce, widen, with_ties, adds)


def _fake(
    x: Tensor,
    weight: Tensor | None,
    graph: int,
    rows: int,
    reduce: str,
    widen: bool,
    with_ties: bool,
    backend: str,
    adds: bool = False,
) -> tuple[Tensor, Tensor]:
    shape = (rows, x.size(1))
    out = x.new_empty(shape, dtype=_accumulator(x) if widen else x.dtype)
    return out, x.new_empty(shape, dtype=_accumulator(x)) if with_ties else out.new_empty(0)


def _grad_kernel(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    extremum: Tensor,
    ties: Tensor,
    graph: int,
    edges: int,
    for_x: bool,
    for_weight: bool,
    backend: str,
    adds: bool = False,
) -> tuple[Tensor, Tensor]:
    runner = backend_for(x.device, x.dtype, backend)
    return runner.extremum_grad(by_number(graph), grad, x, weight, extremum, ties, for_x, for_weight, adds)


def _grad_fake(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    extremum: Tensor,
    ties: Tensor,
    graph: int,
    edges: int,
    for_x: bool,
    for_weight: bool,
    backend: str,
    adds: bool = False,
) -> tuple[Tensor, Tensor]:
    dtype = _accumulator(x)
    grad_x = x.new_empty(x.shape if for_x else (0,), dtype=dtype)
    return grad_x, x.new_empty((edges if for_weight else 0,), dtype=dtype)


class _Recorded(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Any,
        graph: int,
        rows: int,
        reduce: str,
        widen: bool,
        with_ties: bool,
        backend: str,
        adds: bool,
    ) -> tuple[Tensor, Tensor]:
        out, ties = EXTREMUM.unrecorded(x, weight, graph, rows, reduce, widen, True, backend, adds)
        ctx.mark_non_differentiable(ties)
        ctx.save_for_backward(x, weight, out, ties)
        ctx.number, ctx.reduce, ctx.backend, ctx.adds = graph, reduce, backend, adds
        ctx.graph = keep_alive(graph)
        return out, ties

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        x, weight, out, ties = ctx.saved_tensors
        for_x, for_weight = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            grads = _differentiable_grad(ctx, grad, x, weight, out)
            return (*grads, None, None, None, None, None, None, None)
        edges = 0 if weight is None else weight.size(0)
        grad_x, grad_weight = EXTREMUM_GRAD(
            grad, x, weight, out, ties, ctx.number, edges, for_x, for_weight, ctx.backend, ctx.adds
        )
        return (
            grad_x.to(x.dtype) if for_x else None,
            grad_weight.to(weight.dtype) if for_weight else None,
            *(None,) * 7,
        )


def _differentiable_grad(
    ctx: Any, grad: Tensor, x: Tensor, weight: Tensor | None, out: Tensor
) -> list[Tensor | None]:
    """The gradient as a formula that torch can differentiate once more, at the price of a row an edge.

    Second derivatives of max and min are asked for rarely; they do not justify kernels.
    """
    edge_index = by_number(ctx.number).edge_index().to(x.device)
    # Of one operand alone each: views, since the weight may have been computed from x.
    x = x.view_as(x)
    weight = None if weight is None else weight.view_as(weight)
    multiply = "add" if ctx.adds else "mul"
    again = reference_aggregate(edge_index, x, out.size(0), weight, ctx.reduce, multiply=multiply)
    wanted = [
        t for t, need in zip((x, weight), ctx.needs_input_grad[:2], strict=True) if need and t is not None
    ]
    found = iter(torch.autograd.grad(again, wanted, grad.to(again.dtype), create_graph=True))
    return [next(found) if need else None for need in ctx.needs_input_grad[:2]]


def _record(
    x: Tensor,
    weight: Tensor | None,
    graph: int,
    rows: int,
    reduce: str,
    widen: bool,
    with_ties: bool,
    backend: str,
    adds: bool = False,
) -> tuple[Tensor, Tensor] | None:
    if not needs_grad(x, weight):
        return None
    recorded: tuple[Tensor, Tensor] = _Recorded.apply(
        x, weight, graph, rows, reduce, widen, with_ties, backend, adds
    )
    return recorded


EXTREMUM = Operator(SCHEMA, _kernel, _fake, _record)
"""(x, weight, graph number, rows, "max" or "min", widen, with_ties, backend, adds) -> [rows, F], ties

``adds``: messages are weight + x in place of weight * x.
"""
EXTREMUM_GRAD = Operator(GRAD_SCHEMA, _grad_kernel, _grad_fake)
"""(grad, x, weight, extremum, ties, graph number, edges, for_x, for_weight, backend, adds) -> two
gradients"""
