"""A linear step beside an aggregation as one operator: ``onehop::linear_aggregate``.

Eager layers take (A X) W or A (X W), whichever costs less, and the layer's own order where what comes first
is not finite (:mod:`onehop.integrations.pyg.associations`). That depends on the data, as does whether A X is
kept, so a program leaves it to an operator. It saves A X where it was planned to be made, and notes which
order ran, for the backward pass to go the same way.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.calls import Aggregate
from onehop.graph import Graph
from onehop.graph.handle import GraphInProgram, held
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import may_run_elsewhere, product
from onehop.integrations.pyg.recognise import MAYBE_WEIGHTED
from onehop.integrations.pyg.tasks import Task
from onehop.integrations.torch.products import over_rows, times
from onehop.ops.aggregate import AGGREGATE
from onehop.ops.library import LIBRARY

_NAME = "linear_aggregate"
_OPERANDS = "Tensor x, Tensor weight, Tensor? edge_weight, Tensor? scale, Tensor graph"
_CHOICES = "bool mean, bool before, bool own_before, bool constant"
LIBRARY.define(f"{_NAME}({_OPERANDS}, SymInt rows, {_CHOICES}) -> (Tensor, Tensor, Tensor)")
LIBRARY.define(
    f"{_NAME}_grad({_OPERANDS}, {_CHOICES}, Tensor summed, Tensor first, Tensor grad, bool[] wanted)"
    " -> (Tensor, Tensor)"
)
DTYPES = (torch.float32, torch.float64)
"""Of features for which the operator runs: sums of 16 bits are rounded before a product, and after it."""


def linear_aggregate(
    graph: GraphInProgram,
    x: Tensor,
    weight: Tensor,
    edge_weight: Tensor | None,
    scale: Tensor | None,
    mean: bool,
    own_before: bool,
) -> Tensor:
    """A X W^T, in a program, for an aggregation A whose weights need no gradient.

    Args:
        graph: The graph.
        x: [num_src, K], float32 or float64.
        weight: [M, K], of the same dtype.
        edge_weight: [E] or more, of the same dtype; None means 1.
        scale: [N], multiplies sources and destinations; None means 1.
        mean: Whether A is a mean, in place of a sum.
        own_before: Whether the layer's own order is (A X) W^T, in place of A (X W^T).

    Returns:
        [num_dst, M].
    """
    aggregating, multiplying = order.columns(x, weight)
    # Of orders that cost the same, the layer's own.
    before = aggregating <= multiplying if own_before else aggregating < multiplying
    constant = not x.requires_grad
    out: Tensor = torch.ops.onehop.linear_aggregate(
        x, weight, edge_weight, scale, graph.number, graph.num_dst, mean, before, own_before, constant
    )[0]
    return out


class _Step(NamedTuple):
    """Arguments of both operators: operands, and choices that were made while tracing."""

    x: Tensor
    weight: Tensor
    edge_weight: Tensor | None
    scale: Tensor | None
    graph: Graph
    mean: bool
    before: bool
    own_before: bool
    constant: bool

    def task(self) -> Task:
        """The aggregation of the features."""
        edge_weight = self.edge_weight
        if edge_weight is not None and edge_weight.size(0) != self.graph.num_edges:
            edge_weight = edge_weight[: self.graph.num_edges]
        reduce = "mean" if self.mean else "sum"
        # Constant features are recognised by their tensor.
        x = self.x if self.constant else self.x.detach()
        return Task(MAYBE_WEIGHTED, reduce, self.graph, x, edge_weight, self.scale)


def _forward(
    x: Tensor,
    weight: Tensor,
    edge_weight: Tensor | None,
    scale: Tensor | None,
    graph: Tensor,
    rows: int,
    *choices: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    step = _Step(x, weight, edge_weight, scale, held(graph), *choices)
    with torch.no_grad():
        out, summed, first = _in_order(step)
    kept = summed if step.before and summed is not None else x.new_empty(0)
    return out, kept, torch.tensor([first], device="cpu")


def _in_order(step: _Step) -> tuple[Tensor, Tensor | None, bool]:
    """A X W^T; A X, where it was made; and whether the aggregation came first."""
    task = step.task()
    keeps = step.constant and task.is_constant()
    made = summed = None
    if step.before or (keeps and reuse.trained_on(step.x)):
        summed = task.run() if keeps else _summed(task)
    else:
        made = product(step.x, step.weight, None)
        if step.own_before and not order.is_finite(made):
            summed = _summed(task)
    if summed is not None and (step.own_before or order.is_finite(summed)):
        return product(summed, step.weight, None), summed, True
    task.x = product(step.x, step.weight, None) if made is None else made
    return _summed(task), summed, False


def _summed(task: Task, transposed: bool = False) -> Tensor:
    call = Aggregate.of(
        task.graph,
        task.x,
        weight=task.weight,
        src_scale=task.scale,
        dst_scale=task.scale,
        transposed=transposed,
        mean=task.reduce == "mean",
    )
    out: Tensor = AGGREGATE(call, task.graph)
    return out


def _backward(
    x: Tensor,
    weight: Tensor,
    edge_weight: Tensor | None,
    scale: Tensor | None,
    graph: Tensor,
    mean: bool,
    before: bool,
    own_before: bool,
    constant: bool,
    summed: Tensor,
    first: Tensor,
    grad: Tensor,
    wanted: list[bool],
) -> tuple[Tensor, Tensor]:
    step = _Step(x, weight, edge_weight, scale, held(graph), mean, before, own_before, constant)
    with torch.no_grad():
        return _gradients(step, summed if before else None, bool(first), grad, wanted)


def _gradients(
    step: _Step, summed: Tensor | None, first: bool, grad: Tensor, wanted: list[bool]
) -> tuple[Tensor, Tensor]:
    for_x, for_weight = wanted
    grad_x, grad_weight = (step.x.new_empty(0) for _ in wanted)
    task = step.task()
    keeps = step.constant and task.is_constant()
    elsewhere = may_run_elsewhere(step.x)
    if keeps and for_weight:
        reuse.note_training(step.x)
    if first:
        if for_weight:
            if summed is None:
                summed = task.run() if keeps else _summed(task)
            grad_weight = over_rows(grad, summed, elsewhere)
        if for_x:
            task.x = times(grad, step.weight, elsewhere)
            grad_x = _summed(task, transposed=True)
    else:
        task.x = grad
        of_product = _summed(task, transposed=True)
        if for_weight:
            grad_weight = over_rows(of_product, step.x, elsewhere)
        if for_x:
            grad_x = times(of_product, step.weight, elsewhere)
    return grad_x, grad_weight


def _fake_forward(
    x: Tensor,
    weight: Tensor,
    edge_weight: Tensor | None,
    scale: Tensor | None,
    graph: Tensor,
    rows: int,
    mean: bool,
    before: bool,
    own_before: bool,
    constant: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    summed = x.new_empty((rows, x.size(1)) if before else (0,))
    return x.new_empty((rows, weight.size(0))), summed, torch.empty(1, dtype=torch.bool, device="cpu")


def _fake_backward(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    for_x, for_weight = rest[-1]
    return x.new_empty(x.shape if for_x else (0,)), x.new_empty(weight.shape if for_weight else (0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *operands, ctx.rows, ctx.mean, ctx.before, ctx.own_before, ctx.constant = inputs
    _, summed, first = output
    ctx.save_for_backward(*operands, summed, first)
    ctx.mark_non_differentiable(summed, first)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    nothing = (None,) * 10
    wanted = list(ctx.needs_input_grad[:2])
    if grad is None or not any(wanted):
        return nothing
    *operands, summed, first = ctx.saved_tensors
    choices = ctx.mean, ctx.before, ctx.own_before, ctx.constant
    found = torch.ops.onehop.linear_aggregate_grad(*operands, *choices, summed, first, grad, wanted)
    given = tuple(each if want else None for each, want in zip(found, wanted, strict=True))
    return *given, *nothing[2:]


for _name, _kernel, _fake in (
    (_NAME, _forward, _fake_forward),
    (f"{_NAME}_grad", _backward, _fake_backward),
):
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{_name}", _fake, lib=LIBRARY)
torch.library.register_autograd(f"onehop::{_NAME}", _differentiate, setup_context=_save, lib=LIBRARY)
