"""GCNConv, SAGEConv and GraphConv in a program: a linear step and an aggregation as one operator.

Which order runs depends on the data: what comes first has to be finite, and A X may be kept. So a program
leaves the choice to the operator ``onehop::linear_aggregate``. It saves A X where that was planned to come
first, and notes which order ran, so that the backward pass goes the same way.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv

from onehop.calls import Aggregate, on
from onehop.graph.handle import held
from onehop.integrations import session
from onehop.integrations.pyg import programs, reuse
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import (
    gradient_where_edges_end,
    has_edgeless_rows,
    may_run_elsewhere,
    product,
)
from onehop.integrations.pyg.edges.program import NormalisedEdges, ProgramEdges
from onehop.integrations.pyg.layer import reduction_of
from onehop.integrations.pyg.rules.plain import WEIGHTED, Aggregation
from onehop.integrations.torch.products import is_torchs, over_rows, times
from onehop.ops.aggregate import AGGREGATE
from onehop.ops.library import LIBRARY

# Of features for which the operator runs: sums of 16 bits are rounded before a product, and after it.
_DTYPES = (torch.float32, torch.float64)
_EMPTY = (
    "cached=True and nothing is kept yet: call the model once before it is compiled, or compile it with "
    "fullgraph=True"
)


# Layers


def gcn(
    gcn_norm: order.Function | None,
    theirs: order.Function,
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any = None,
) -> Tensor | None:
    """Computes GCNConv's ``forward`` in a program; None if torch has to trace PyG's code.

    Arguments are those of :func:`.order.gcn`.
    """
    if (
        programs.forward_reason(layer, edge_index) is not None
        or type(layer).message is not GCNConv.message
        or gcn_conv.gcn_norm is not gcn_norm
        or layer.node_dim != -2
        or not isinstance(x, Tensor)
        or (edge_weight is not None and edge_weight.dtype is not x.dtype)
    ):
        return None
    edges, edge_weight = _edges(layer, x, edge_index, edge_weight)
    if edges is None:
        return None
    task, lin = programs.planned(layer, edges, {"x": x, "edge_weight": edge_weight}), layer.lin
    programs.note(layer, task, task.messages)
    if _combines(layer, lin, x, edge_weight, biased=False):
        out = _linear_aggregate(task, lin.weight, own_before=False)
    else:
        task.x = lin(x)
        out = task.computed()
    return out if layer.bias is None else out + layer.bias


def _edges(layer: Any, x: Tensor, edge_index: Tensor, weight: Any) -> tuple[ProgramEdges | None, Any]:
    """The edges that GCNConv aggregates over, and their weights as far as these are given.

    No edges if the layer has to keep normalised ones that a program cannot make.
    """
    nodes = x.size(-2)
    if not layer.normalize:
        return ProgramEdges(layer, edge_index, (nodes, nodes)), weight
    if layer._cached_edge_index is not None:
        edge_index, weight = layer._cached_edge_index
        return ProgramEdges(layer, edge_index, (nodes, nodes)), weight
    edges = NormalisedEdges(layer, edge_index, nodes)
    if layer.cached:
        if weight is not None:
            return None, None
        if not _counts_when_it_runs():
            programs.refuse(layer, _EMPTY)
            return None, None
        layer._cached_edge_index = edges.listed(x.dtype)
    return edges, weight


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _counts_when_it_runs() -> bool:
    """Return whether a program may hold tensors whose size is known when it runs, as with ``fullgraph=True``.

    They would end it otherwise, and in a loop torch then compiles nothing of the function around it.
    """
    mode = torch._guards.detect_fake_mode()
    return bool(mode and mode.shape_env and mode.shape_env.allow_dynamic_output_shape_ops)


def rooted(
    layer: Any, linear: str, own: str, x: Any, edge_index: Any, size: Any, weights: dict[str, Any]
) -> Tensor | None:
    """Computes (A X) W^T + b + T V^T in a program; None if torch has to trace PyG's code.

    Arguments are those of :func:`.order.rooted`.
    """
    ends = (x, x) if isinstance(x, Tensor) else x
    if (
        programs.forward_reason(layer, edge_index) is not None
        or not isinstance(ends, tuple)
        or not isinstance(ends[0], Tensor)
        or not _combines(layer, getattr(layer, linear), ends[0], weights.get("edge_weight"), biased=True)
    ):
        return None
    task = programs.planned(
        layer, ProgramEdges(layer, edge_index, size), {"x": ends, "size": size, **weights}
    )
    programs.note(layer, task, task.messages)
    lin, root, target = getattr(layer, linear), getattr(layer, own) if own else None, ends[1]
    out = _linear_aggregate(task, lin.weight, own_before=True)
    if lin.bias is not None:
        out = out + lin.bias
    return out if target is None or root is None else out + root(target)


def _combines(layer: Any, lin: Any, x: Tensor, weight: Tensor | None, biased: bool) -> bool:
    """Return whether one operator does both steps; weights that need a gradient are left to aggregations."""
    return (
        reduction_of(layer, traced=True)[0] in order.LINEAR
        and order.is_product(lin, x, biased)
        and _multiplies_as_torch()
        and x.dtype in _DTYPES
        and lin.weight.dtype is x.dtype
        and (weight is None or (weight.dtype is x.dtype and not weight.requires_grad))
        and not torch.is_autocast_enabled(x.device.type)
        and session.now.settings.associate
        and not session.now.backend
    )


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _multiplies_as_torch() -> bool:
    return is_torchs()


def _linear_aggregate(task: Aggregation, weight: Tensor, own_before: bool) -> Tensor:
    """A X W^T for an aggregation A of X whose weights need no gradient: [num_dst, M].

    Args:
        task: The aggregation of features that are float32 or float64, in a program.
        weight: [M, K], of the same dtype.
        own_before: Whether the layer's own order is (A X) W^T instead of A (X W^T).
    """
    x, graph = task.x, task.graph
    before, constant = order.aggregates_first(x, weight, own_before), not x.requires_grad
    operands = (x, weight, task.weight, task.scale, graph.number, graph.num_dst)
    choices = (task.reduce == "mean", before, own_before, constant)
    out: Tensor = torch.ops.onehop.linear_aggregate(*operands, *choices)[0]
    return out


# The operator


_NAME = "linear_aggregate"
_OPERANDS = "Tensor x, Tensor weight, Tensor? edge_weight, Tensor? scale, Tensor graph"
_CHOICES = "bool mean, bool before, bool own_before, bool constant"
LIBRARY.define(f"{_NAME}({_OPERANDS}, SymInt rows, {_CHOICES}) -> (Tensor, Tensor, Tensor)")
LIBRARY.define(
    f"{_NAME}_grad({_OPERANDS}, {_CHOICES}, Tensor summed, Tensor first, Tensor grad, bool[] wanted)"
    " -> (Tensor, Tensor)"
)
_PLACE_OF_ROWS = 5


class _Step(NamedTuple):
    """Arguments of both operators: operands, and choices that were made while tracing."""

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
        """The aggregation of the features."""
        graph, edge_weight = held(self.graph), self.edge_weight
        if edge_weight is not None and edge_weight.size(0) != graph.num_edges:
            edge_weight = edge_weight[: graph.num_edges]
        return Aggregation(WEIGHTED, "mean" if self.mean else "sum", graph, self.x, edge_weight, self.scale)

    def is_constant(self) -> bool:
        """Return whether A X may be kept."""
        return self.constant and self.task().is_constant()

    def aggregated(self) -> Tensor:
        """A X, which is kept where it may be."""
        return self.task().run() if self.is_constant() else self.sum_of(self.x)

    def sum_of(self, rows: Tensor, transposed: bool = False) -> Tensor:
        """The aggregation of other rows, or of gradients over the reversed edges."""
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
    made, first = order.first_step(
        x, weight, step.before, step.own_before, step.is_constant(), step.aggregated
    )
    out = product(made, weight, None) if first else step.sum_of(made)
    # As many numbers as were planned for, read only if A X came first.
    kept = made if step.before and first else x.new_zeros((rows, x.size(1)) if step.before else 0)
    return out, kept, torch.tensor([first], device="cpu")


@torch.no_grad()
def _backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    *inputs, summed, first, grad, (for_x, for_weight) = arguments
    step = _Step(*inputs)
    x, weight, elsewhere = step.x, step.weight, may_run_elsewhere(step.x)
    if for_weight and step.is_constant():
        reuse.note_training(x)
    grad_x, grad_weight = x.new_empty(0), x.new_empty(0)
    if first:
        if for_weight and not step.own_before and has_edgeless_rows(held(step.graph)):
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
    wanted = list(ctx.needs_input_grad[:2])
    given: list[Tensor | None] = [None] * (len(_Step._fields) + 1)  # and one for the rows
    if grad is not None and any(wanted):
        *operands, summed, first = ctx.saved_tensors
        found = torch.ops.onehop.linear_aggregate_grad(*operands, *ctx.choices, summed, first, grad, wanted)
        given[:2] = (each if want else None for each, want in zip(found, wanted, strict=True))
    return tuple(given)


for _name, _kernel, _fake in (
    (_NAME, _forward, _fake_forward),
    (f"{_NAME}_grad", _backward, _fake_backward),
):
    LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"onehop::{_name}", _fake, lib=LIBRARY)
torch.library.register_autograd(f"onehop::{_NAME}", _differentiate, setup_context=_save, lib=LIBRARY)
