"""Softmax over edges: ``onehop::edge_softmax`` and its gradient, ``onehop::edge_softmax_grad``."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops.dots import SDDMM
from onehop.ops.library import Function, Operator, keep_alive, needs_grad
from onehop.ops.linear import AGGREGATE

SCHEMA = "edge_softmax(Tensor scores, SymInt graph, SymInt sources, SymInt rows, str backend) -> Tensor"
GRAD_SCHEMA = (
    "edge_softmax_grad(Tensor softmax, Tensor grad, SymInt graph, SymInt sources, SymInt rows, str backend) "
    "-> Tensor"
)


def _kernel(scores: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
    return backend_for(scores.device, scores.dtype, backend).edge_softmax(by_number(graph), scores)


def _fake(scores: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
    return scores.new_empty(scores.shape)


def _grad_kernel(softmax: Tensor, grad: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
    runner = backend_for(softmax.device, softmax.dtype, backend)
    return runner.edge_softmax_grad(by_number(graph), softmax, grad)


def _grad_fake(softmax: Tensor, grad: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
    return softmax.new_empty(softmax.shape)


class _Recorded(Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
        out: Tensor = EDGE_SOFTMAX.unrecorded(scores, graph, sources, rows, backend)
        ctx.save_for_backward(out)
        ctx.rest = (graph, sources, rows, backend)
        ctx.graph = keep_alive(graph)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (softmax,) = ctx.saved_tensors
        return EDGE_SOFTMAX_GRAD(softmax, grad, *ctx.rest), None, None, None, None


class _RecordedGrad(Function):
    """The gradient a (g - s), with s the sum of a g over the edge's row.

    Given v, the gradient to that, the gradient to g is a (v - t), with t the sum of a v: the same operator.
    The gradient to a is v (g - s) - g t, in which s and t are read for every edge and head.
    """

    @staticmethod
    def forward(
        ctx: Any, softmax: Tensor, grad: Tensor, graph: int, sources: int, rows: int, backend: str
    ) -> Tensor:
        ctx.save_for_backward(softmax, grad)
        ctx.rest = (graph, sources, rows, backend)
        ctx.graph = keep_alive(graph)
        out: Tensor = EDGE_SOFTMAX_GRAD.unrecorded(softmax, grad, *ctx.rest)
        return out

    @staticmethod
    def backward(ctx: Any, again: Tensor) -> tuple[Any, ...]:
        softmax, grad = ctx.saved_tensors
        to_softmax = to_grad = None
        if ctx.needs_input_grad[0]:
            s, t = _row_sums(softmax * grad, *ctx.rest), _row_sums(softmax * again, *ctx.rest)
            to_softmax = again * (grad - s) - grad * t
        if ctx.needs_input_grad[1]:
            to_grad = EDGE_SOFTMAX_GRAD(softmax, again, *ctx.rest)
        return to_softmax, to_grad, None, None, None, None


def _row_sums(values: Tensor, graph: int, sources: int, rows: int, backend: str) -> Tensor:
    """[E, H]: for every edge the sum of the values of its row, by the weighted sum of sources of 1."""
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    heads = values.size(1)
    ones = values.new_ones((sources, heads), dtype=dtype)
    sums = AGGREGATE(ones, values.to(dtype), None, None, graph, rows, False, False, False, backend)
    spread: Tensor = SDDMM(sums.unsqueeze(2), ones.unsqueeze(2), graph, values.size(0), False, False, backend)
    return spread.to(values.dtype)


def _record(scores: Tensor, *rest: Any) -> Tensor | None:
    if not needs_grad(scores):
        return None
    recorded: Tensor = _Recorded.apply(scores, *rest)
    return recorded


def _record_grad(softmax: Tensor, grad: Tensor, *rest: Any) -> Tensor | None:
    if not needs_grad(softmax, grad):
        return None
    recorded: Tensor = _RecordedGrad.apply(softmax, grad, *rest)
    return recorded


EDGE_SOFTMAX = Operator(SCHEMA, _kernel, _fake, _record)
"""(scores [E, H], graph number, sources, rows, backend) -> [E, H]"""
EDGE_SOFTMAX_GRAD = Operator(GRAD_SCHEMA, _grad_kernel, _grad_fake, _record_grad)
"""(softmax [E, H], gradient [E, H] of the same dtype, graph number, sources, rows, backend) -> [E, H]"""
