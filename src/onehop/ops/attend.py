"""The operators under gat, gatv2 and attention: ``onehop::attend`` and its gradient, ``onehop::attend_grad``.

The three differ in how scores are made; ``AttentionOperands`` says what each argument is to each.
"""

from typing import Any, cast

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.backends.reference import attention_formula
from onehop.graph import by_number
from onehop.kernels.attention_operands import AttentionOperands, Rule
from onehop.ops.library import Function, Operator, keep_alive, needs_grad

_OPERANDS = (
    "Tensor value, Tensor? key, Tensor query, Tensor? att, Tensor? edge, Tensor? edge_weight, Tensor? mask, "
    "Tensor? seed, SymInt graph, SymInt rows, SymInt edges, str rule, float factor, float dropout, "
    "str backend"
)
SCHEMA = f"attend({_OPERANDS}, bool with_weights) -> (Tensor, Tensor, Tensor)"
GRAD_SCHEMA = (
    f"attend_grad({_OPERANDS}, Tensor out, Tensor softmax, Tensor? weights, Tensor grad, "
    "Tensor? grad_weights, bool[] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
# value, key, query, att, edge and edge_weight come first; they alone have gradients.
_DIFFERENTIABLE = 6
_COMMON = 15


def _operands(args: tuple[Any, ...]) -> AttentionOperands:
    value, key, query, att, edge, edge_weight, mask, seed, _, _, _, rule, factor, dropout, _ = args
    number = 0 if seed is None else int(seed)
    return AttentionOperands(
        cast(Rule, rule), value, key, query, att, edge, edge_weight, mask, factor, dropout, number
    )


def _kernel(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    common, (with_weights,) = args[:_COMMON], args[_COMMON:]
    value, graph, backend = common[0], common[8], common[14]
    runner = backend_for(value.device, value.dtype, backend)
    return runner.attend(by_number(graph), _operands(common), with_weights)


def _fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    value, rows, edges, with_weights = args[0], args[9], args[10], args[_COMMON]
    dtype = torch.float64 if value.dtype == torch.float64 else torch.float32
    heads = value.size(1)
    return (
        value.new_empty((rows, heads, value.size(2))),
        value.new_empty((rows, 2, heads), dtype=dtype),
        value.new_empty((edges, heads) if with_weights else (0,), dtype=dtype),
    )


def _grad_kernel(*args: Any) -> tuple[Tensor, ...]:
    common, (out, softmax, weights, grad, grad_weights, wanted) = args[:_COMMON], args[_COMMON:]
    value, graph, backend = common[0], common[8], common[14]
    runner = backend_for(value.device, value.dtype, backend)
    found = runner.attend_grad(
        by_number(graph), _operands(common), out, softmax, weights, grad, grad_weights, wanted
    )
    grads = (found.value, found.key, found.query, found.att, found.edge, found.edge_weight)
    return tuple(value.new_empty(0) if g is None else g for g in grads)


def _grad_fake(*args: Any) -> tuple[Tensor, ...]:
    operands, wanted = args[:_DIFFERENTIABLE], args[-1]
    return tuple(
        t.new_empty(t.shape) if want and t is not None else args[0].new_empty(0)
        for t, want in zip(operands, wanted, strict=True)
    )


class _Recorded(Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        common, with_weights = args[:_COMMON], args[_COMMON]
        out, softmax, weights = ATTEND.unrecorded(*args)
        ctx.mark_non_differentiable(softmax)
        if not with_weights:
            ctx.mark_non_differentiable(weights)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*common[:8], out, softmax, weights if with_weights else None)
        ctx.rest = common[8:]
        ctx.graph = keep_alive(common[8])
        return out, softmax, weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any, grad_weights: Tensor | None) -> tuple[Any, ...]:
        *operands, out, softmax, weights = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:_DIFFERENTIABLE])
        if grad is None and grad_weights is None:
            return (None,) * (_COMMON + 1)
        if grad is None:
            # Values that are no keys reach the weights by no way.
            rule = ctx.rest[3]
            wanted[0] = wanted[0] and operands[1] is None and rule != "gat"
        if torch.is_grad_enabled():
            found = _differentiable_grads((*operands, *ctx.rest), wanted, grad, grad_weights)
        else:
            grad = torch.zeros_like(out) if grad is None else grad
            found = ATTEND_GRAD(*operands, *ctx.rest, out, softmax, weights, grad, grad_weights, wanted)
        grads = (g if want else None for g, want in zip(found, wanted, strict=True))
        return (*grads, *(None,) * (_COMMON + 1 - _DIFFERENTIABLE))


def _differentiable_grads(
    common: tuple[Any, ...], wanted: list[bool], grad: Tensor | None, grad_weights: Tensor | None
) -> list[Tensor | None]:
    """The gradients as formulas that torch can differentiate once more, at the price of a row an edge.

    Second derivatives of attention are asked for rarely; they do not justify kernels.
    """
    # Of one operand alone each: views, since an operand may have been computed from another.
    views = [t.view_as(t) if want else t for t, want in zip(common, wanted, strict=False)]
    operands = _operands((*views, *common[_DIFFERENTIABLE:]))
    again, weights = attention_formula(by_number(common[8]), operands)
    given = [(made, g) for made, g in ((again, grad), (weights, grad_weights)) if g is not None]
    outputs, grads = [made for made, _ in given], [g.to(made.dtype) for made, g in given]
    leaves = [view for view, want in zip(views, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(outputs, leaves, grads, create_graph=True))
    return [next(found) if want else None for want in wanted]


def _record(*args: Any) -> tuple[Tensor, Tensor, Tensor] | None:
    if not needs_grad(*args[:_DIFFERENTIABLE]):
        return None
    recorded: tuple[Tensor, Tensor, Tensor] = _Recorded.apply(*args)
    return recorded


ATTEND = Operator(SCHEMA, _kernel, _fake, _record)
"""(value, key, query, att, edge, edge_weight, mask, seed, graph number, rows, edges, rule, factor, dropout,
backend, with_weights) -> output [rows, H, V], softmax [rows, 2, H], weights [E, H]

``seed`` is an int64 tensor of one element: a number would be frozen into a compiled program.
"""
ATTEND_GRAD = Operator(GRAD_SCHEMA, _grad_kernel, _grad_fake)
"""(the first 15 of ATTEND, out, softmax, weights, grad, grad_weights, wanted) -> six gradients, empty where
not wanted"""
