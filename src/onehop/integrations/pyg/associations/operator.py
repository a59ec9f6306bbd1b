"""The operator ``onehop::linear_aggregate`` of programs: a linear step and an aggregation, in either order.

The operator chooses the order when the program runs. It saves A X if that was planned to come first, and
returns which order ran, so that the backward pass uses the same order. Exported programs call it without PyG,
so this module does not import PyG.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.calls import Aggregate, on
from onehop.graph.handle import held
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.aggregation import WEIGHTED, Aggregation
from onehop.integrations.pyg.associations.product import (
    gradient_where_edges_end,
    may_run_elsewhere,
    product,
)
from onehop.integrations.pyg.associations.steps import first_step
from onehop.integrations.torch.products import over_rows, times
from onehop.ops.aggregate import AGGREGATE
from onehop.ops.namespace import LIBRARY, define

_NAME = "linear_aggregate"
_OPERANDS = "Tensor x, Tensor weight, Tensor? edge_weight, Tensor? scale, Tensor graph"
_CHOICES = "bool mean, bool before, bool own_before, bool constant"
_SCHEMA = f"({_OPERANDS}, SymInt rows, {_CHOICES}) -> (Tensor, Tensor, Tensor)"
_SCHEMA_OF_GRADIENT = (
    f"({_OPERANDS}, {_CHOICES}, Tensor summed, Tensor first, Tensor grad, bool[] wanted) -> (Tensor, Tensor)"
)
_PLACE_OF_ROWS = 5


class _Step(NamedTuple):
    """The arguments of the forward and the backward operator: operands, and choices made during tracing."""

    x: Tensor
    weight: Tensor
    edge_weight: Tensor | None
    scale: Tensor | None
    graph: Tensor
    mean: bool
    before: bool
    own_before: bool
    constant: bool

    def task(self) -> Aggregation:
        """Return the aggregation of the features."""
        graph, edge_weight = held(self.graph), self.edge_weight
        if edge_weight is not None and edge_weight.size(0) != graph.num_edges:
            edge_weight = edge_weight[: graph.num_edges]
        return Aggregation(WEIGHTED, "mean" if self.mean else "sum", graph, self.x, edge_weight, self.scale)

    def is_constant(self) -> bool:
        """Return whether A X may be cached."""
        return self.constant and self.task().is_constant()

    def aggregated(self) -> Tensor:
        """Return A X, from the cache if it may be cached."""
        return self.task().run() if self.is_constant() else self.sum_of(self.x)

    def sum_of(self, rows: Tensor, transposed: bool = False) -> Tensor:
        """Return the aggregation of other rows, or of gradients over the reversed edges."""
        task = self.task()
        call = on(
            task.graph,
            Aggregate,
            x=rows,
            weight=task.weight,
            src_scale=task.scale,
            dst_scale=task.scale,
            transposed=transposed,
            mean=self.mean,
        )
        out: Tensor = AGGREGATE(call, task.graph)
        return out


@torch.no_grad()
def _forward(
    x: Tensor,
    weight: Tensor,
    edge_weight: Tensor | None,
    scale: Tensor | None,
    graph: Tensor,
    rows: int,
    *choices: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    step = _Step(x, weight, edge_weight, scale, graph, *choices)
    inner, first = first_step(x, weight, step.before, step.own_before, step.is_constant(), step.aggregated)
    out = product(inner, weight, None) if first else step.sum_of(inner)
    # The size is the planned one; the contents are read only if A X came first.
    summed = inner if step.before and first else x.new_zeros((rows, x.size(1)) if step.before else 0)
    return out, summed, torch.tensor([first], device="cpu")


@torch.no_grad()
def _backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    *inputs, summed, first, grad, (for_x, for_weight) = arguments
    step = _Step(*inputs)
    x, weight, elsewhere = step.x, step.weight, may_run_elsewhere(step.x)
    if for_weight and step.is_constant():
        reuse.note_training(x)
    grad_x, grad_weight = x.new_empty(0), x.new_empty(0)
    if first:
        if for_weight and not step.own_before:
            grad = gradient_where_edges_end(held(step.graph), grad)
        if for_weight:
            grad_weight = over_rows(grad, summed if step.before else step.aggregated(), elsewhere)
        if for_x:
            grad_x = step.sum_of(times(grad, weight, elsewhere), transposed=True)
    else:
        of_product = step.sum_of(grad, transposed=True)
        if for_weight:
            grad_weight = over_rows(of_product, x, elsewhere)
        if for_x:
            grad_x = times(of_product, weight, elsewhere)
    return grad_x, grad_weight


def _fake_forward(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, rows, _, before, _, _ = rest
    summed = x.new_empty((rows, x.size(1)) if before else (0,))
    return x.new_empty((rows, weight.size(0))), summed, torch.empty(1, dtype=torch.bool, device="cpu")


def _fake_backward(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    for_x, for_weight = rest[-1]
    return x.new_empty(x.shape if for_x else (0,)), x.new_empty(weight.shape if for_weight else (0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, summed, first = output
    ctx.choices = inputs[_PLACE_OF_ROWS + 1 :]
    ctx.save_for_backward(*inputs[:_PLACE_OF_ROWS], summed, first)
    ctx.mark_non_differentiable(summed, first)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:2])
    gradients: list[Tensor | None] = [None] * (len(_Step._fields) + 1)  # one more for the argument ``rows``
    if grad is not None and any(needs):
        *operands, summed, first = ctx.saved_tensors
        of_operands = torch.ops.onehop.linear_aggregate_grad(
            *operands, *ctx.choices, summed, first, grad, needs
        )
        gradients[:2] = (each if wants else None for each, wants in zip(of_operands, needs, strict=True))
    return tuple(gradients)


define(_NAME, _forward, _fake_forward, _SCHEMA)
define(f"{_NAME}_grad", _backward, _fake_backward, _SCHEMA_OF_GRADIENT)
torch.library.register_autograd(f"onehop::{_NAME}", _differentiate, setup_context=_save, lib=LIBRARY)

LINEAR_AGGREGATE: Any = torch.ops.onehop.linear_aggregate
"""The forward operator. Its first result is A X W^T."""
