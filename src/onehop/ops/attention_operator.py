"""The operator behind the three forms of attention, and its gradients."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends.reference import attention_formula
from onehop.calls import Attention, AttentionGrad, AttentionGradients, accumulator, attention_grad
from onehop.graph import Graph, by_number
from onehop.ops.held_edges import of_edges, with_edges
from onehop.ops.library import Context, Operator, run


class _Attention(Operator[Attention]):
    call = Attention
    results = 3
    gradients_of = AttentionGradients

    def fake(self, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        value, acc, heads = call.value, accumulator(call.value.dtype), call.heads
        return (
            value.new_empty((call.rows, heads, value.size(2))),
            value.new_empty((call.rows, 2, heads), dtype=acc),
            value.new_empty((call.edges, heads) if call.with_weights else (0,), dtype=acc),
        )

    def fitted(self, call: Attention, graph: Graph) -> Attention:
        edge = None if call.edge is None else of_edges(call.edge, graph)
        mask = None if call.mask is None else of_edges(call.mask, graph)
        return call._replace(edge=edge, mask=mask, edges=graph.num_edges)

    def padded(self, call: Attention, results: Any) -> Any:
        out, softmax, weights = results
        return out, softmax, with_edges(weights, call.edges) if call.with_weights else weights

    def constant(self, call: Attention, results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return results[1:2] if call.with_weights else results[1:]

    def saved(
        self, call: Attention, results: Any, wanted: tuple[str, ...]
    ) -> tuple[Attention, tuple[Tensor, ...]]:
        return call, results if call.with_weights else results[:2]

    def gradients(self, context: Context[Attention], *grads: Tensor | None) -> AttentionGradients:
        call, (grad, _, grad_weights) = context.call, grads
        wanted = [name in context.wanted for name in AttentionGradients._fields]
        if grad is None:
            # Values that are no keys reach the weights by no way.
            wanted[0] = wanted[0] and call.key is None and call.rule != "gat"
        if torch.is_grad_enabled():
            return _differentiable_gradients(call, wanted, grad, grad_weights)
        grad = torch.zeros_like(context.results[0]) if grad is None else grad
        results = (*context.results, grad.new_empty(0))[:3]
        found = run(attention_grad(call, results, grad, grad_weights=grad_weights, wanted=wanted))
        return AttentionGradients(*(each if want else None for each, want in zip(found, wanted, strict=True)))


class _AttentionGrad(Operator[AttentionGrad]):
    call = AttentionGrad
    results = len(AttentionGradients._fields)

    def fitted(self, call: AttentionGrad, graph: Graph) -> AttentionGrad:
        weights = None if call.weights is None else of_edges(call.weights, graph)
        grad_weights = None if call.grad_weights is None else of_edges(call.grad_weights, graph)
        return call._replace(
            call=ATTENTION.fitted(call.call, graph), weights=weights, grad_weights=grad_weights
        )

    def padded(self, call: AttentionGrad, results: Any) -> Any:
        found = AttentionGradients(*results)
        place = AttentionGradients._fields.index("edge")
        if not call.wanted[place] or call.call.edge is None:
            return results
        return (*found[:place], with_edges(results[place], call.call.edge.size(0)), *found[place + 1 :])

    def fake(self, call: AttentionGrad) -> tuple[Tensor, ...]:
        operands = (getattr(call.call, name) for name in AttentionGradients._fields)
        return tuple(
            t.new_empty(t.shape) if want and t is not None else call.call.value.new_empty(0)
            for t, want in zip(operands, call.wanted, strict=True)
        )


def _differentiable_gradients(
    call: Attention, wanted: list[bool], grad: Tensor | None, grad_weights: Tensor | None
) -> AttentionGradients:
    """The gradients as formulas that torch can differentiate once more, at the cost of a row an edge.

    Second derivatives of attention are asked for rarely; they do not justify kernels.
    """
    names = [name for name, want in zip(AttentionGradients._fields, wanted, strict=True) if want]
    # Of one operand alone each: views, since an operand may have been computed from another.
    views = {name: getattr(call, name).view_as(getattr(call, name)) for name in names}
    again, weights = attention_formula(by_number(call.graph), call._replace(**views))
    given = [(made, g) for made, g in ((again, grad), (weights, grad_weights)) if g is not None]
    outputs, grads = [made for made, _ in given], [g.to(made.dtype) for made, g in given]
    found = torch.autograd.grad(outputs, list(views.values()), grads, create_graph=True)
    return AttentionGradients(**dict(zip(names, found, strict=True)))


ATTENTION = _Attention()
ATTENTION_GRAD = _AttentionGrad()
