"""Softmax over edges: ``onehop::edge_softmax`` and its gradient, ``onehop::edge_softmax_grad``."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops.library import below_autograd, define, keep_alive, needs_grad

SCHEMA = "edge_softmax(Tensor scores, SymInt graph, str backend) -> Tensor"
GRAD_SCHEMA = "edge_softmax_grad(Tensor softmax, Tensor grad, SymInt graph, str backend) -> Tensor"


def _kernel(scores: Tensor, graph: int, backend: str) -> Tensor:
    return backend_for(scores.device, scores.dtype, backend).edge_softmax(by_number(graph), scores)


def _fake(scores: Tensor, graph: int, backend: str) -> Tensor:
    return scores.new_empty(scores.shape)


def _grad_kernel(softmax: Tensor, grad: Tensor, graph: int, backend: str) -> Tensor:
    runner = backend_for(softmax.device, softmax.dtype, backend)
    return runner.edge_softmax_grad(by_number(graph), softmax, grad)


def _grad_fake(softmax: Tensor, grad: Tensor, graph: int, backend: str) -> Tensor:
    return softmax.new_empty(softmax.shape)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, graph: int, backend: str) -> Tensor:
        out: Tensor = below_autograd(EDGE_SOFTMAX, _kernel, scores, graph, backend)
        ctx.save_for_backward(out)
        ctx.number, ctx.backend = graph, backend
        ctx.graph = keep_alive(graph)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (softmax,) = ctx.saved_tensors
        return EDGE_SOFTMAX_GRAD(softmax, grad, ctx.number, ctx.backend), None, None


class _RecordedGrad(torch.autograd.Function):
    """The gradient a (g - s), with s the sum of a g over the edge's row.

    Given v, the gradient to that, the gradient to g is a (v - t), with t the sum of a v: the same operator.
    The gradient to a is v (g - s) - g t, in which s and t are read for every edge and head.
    """

    @staticmethod
    def forward(ctx: Any, softmax: Tensor, grad: Tensor, graph: int, backend: str) -> Tensor:
        ctx.save_for_backward(softmax, grad)
        ctx.number, ctx.backend = graph, backend
        ctx.graph = keep_alive(graph)
        out: Tensor = below_autograd(EDGE_SOFTMAX_GRAD, _grad_kernel, softmax, grad, graph, backend)
        return out

    @staticmethod
    def backward(ctx: Any, again: Tensor) -> tuple[Any, ...]:
        softmax, grad = ctx.saved_tensors
        to_softmax = to_grad = None
        if ctx.needs_input_grad[0]:
            graph = by_number(ctx.number)
            target = graph.edge_index()[1].long().to(softmax.device)
            zeros = softmax.new_zeros(graph.num_dst, softmax.size(1))

            def of_row(values: Tensor) -> Tensor:
                return zeros.index_add(0, target, values).index_select(0, target)

            to_softmax = again * (grad - of_row(softmax * grad)) - grad * of_row(softmax * again)
        if ctx.needs_input_grad[1]:
            to_grad = EDGE_SOFTMAX_GRAD(softmax, again, ctx.number, ctx.backend)
        return to_softmax, to_grad, None, None


def _autograd(scores: Tensor, graph: int, backend: str) -> Tensor:
    if needs_grad(scores):
        recorded: Tensor = _Recorded.apply(scores, graph, backend)  # type: ignore[no-untyped-call]
        return recorded
    result: Tensor = below_autograd(EDGE_SOFTMAX, _kernel, scores, graph, backend)
    return result


def _grad_autograd(softmax: Tensor, grad: Tensor, graph: int, backend: str) -> Tensor:
    if needs_grad(softmax, grad):
        recorded: Tensor = _RecordedGrad.apply(softmax, grad, graph, backend)  # type: ignore[no-untyped-call]
        return recorded
    result: Tensor = below_autograd(EDGE_SOFTMAX_GRAD, _grad_kernel, softmax, grad, graph, backend)
    return result


EDGE_SOFTMAX = define(SCHEMA, _kernel, _fake, _autograd)
"""(scores [E, H], graph number, backend) -> [E, H]"""
EDGE_SOFTMAX_GRAD = define(GRAD_SCHEMA, _grad_kernel, _grad_fake, _grad_autograd)
"""(softmax [E, H], gradient [E, H] of the same dtype, graph number, backend) -> [E, H]"""
