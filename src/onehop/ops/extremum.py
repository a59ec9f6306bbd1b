"""Max and min: ``onehop::extremum`` and its gradient, ``onehop::extremum_grad``."""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import Extremum, ExtremumGrad, ExtremumGradients, accumulator
from onehop.graph import Graph, by_number
from onehop.ops.held_edges import of_edges, with_edges
from onehop.ops.library import Context, Operator, run
from onehop.reference.aggregate import aggregate as reference_aggregate


class _Extremum(Operator[Extremum]):
    call = Extremum
    results = 2
    asks_more = True
    gradients_of = ExtremumGradients

    def fake(self, call: Extremum) -> tuple[Tensor, Tensor]:
        shape, acc = (call.rows, call.x.size(1)), accumulator(call.x.dtype)
        out = call.x.new_empty(shape, dtype=acc if call.widen else call.x.dtype)
        return out, call.x.new_empty(shape, dtype=acc) if call.with_ties else out.new_empty(0)

    def fitted(self, call: Extremum, graph: Graph) -> Extremum:
        weight = None if call.weight is None else of_edges(call.weight, graph)
        return call._replace(weight=weight, edges=graph.num_edges)

    def recorded(self, call: Extremum) -> Extremum:
        return call._replace(with_ties=True)

    def saved(
        self, call: Extremum, results: Any, wanted: tuple[str, ...]
    ) -> tuple[Extremum, tuple[Tensor, ...]]:
        return call, results

    def gradients(self, context: Context[Extremum], *grads: Tensor | None) -> ExtremumGradients:
        call, (extremum, ties), grad = context.call, context.results, grads[0]
        assert grad is not None
        if torch.is_grad_enabled():
            return _differentiable_gradients(call, context.wanted, grad, extremum)
        wanted = [name in context.wanted for name in ExtremumGradients._fields]
        found = run(ExtremumGrad(call=call, extremum=extremum, ties=ties, grad=grad, wanted=wanted))
        return ExtremumGradients(*found)


class _ExtremumGrad(Operator[ExtremumGrad]):
    call = ExtremumGrad
    results = 2

    def fitted(self, call: ExtremumGrad, graph: Graph) -> ExtremumGrad:
        return call._replace(call=EXTREMUM.fitted(call.call, graph))

    def padded(self, call: ExtremumGrad, results: Any) -> Any:
        grad_x, grad_weight = results
        return grad_x, with_edges(grad_weight, call.call.edges) if call.wanted[1] else grad_weight

    def fake(self, call: ExtremumGrad) -> tuple[Tensor, Tensor]:
        x, (for_x, for_weight) = call.call.x, call.wanted
        acc = accumulator(x.dtype)
        grad_x = x.new_empty(x.shape if for_x else (0,), dtype=acc)
        return grad_x, x.new_empty((call.call.edges if for_weight else 0,), dtype=acc)


def _differentiable_gradients(
    call: Extremum, wanted: tuple[str, ...], grad: Tensor, extremum: Tensor
) -> ExtremumGradients:
    """The gradients as a formula that torch can differentiate once more, at the cost of a row an edge.

    Second derivatives of max and min are asked for rarely; they do not justify kernels.
    """
    edge_index = by_number(call.graph).edge_index().to(call.x.device)
    # Of one operand alone each: views, since the weight may have been computed from x.
    x = call.x.view_as(call.x)
    weight = None if call.weight is None else call.weight.view_as(call.weight)
    multiply = "add" if call.adds else "mul"
    again = reference_aggregate(edge_index, x, extremum.size(0), weight, call.reduce, multiply=multiply)
    leaves = {name: leaf for name, leaf in (("x", x), ("weight", weight)) if name in wanted}
    found = torch.autograd.grad(
        again, [leaf for leaf in leaves.values() if leaf is not None], grad.to(again.dtype), create_graph=True
    )
    return ExtremumGradients(**dict(zip(leaves, found, strict=True)))


EXTREMUM = _Extremum()
EXTREMUM_GRAD = _ExtremumGrad()
