"""Which order costs less, and whether a layer's linear step may be taken out of its place."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn.dense.linear import Linear

from onehop.integrations import memory, reports
from onehop.integrations.contexts import autocasts, context_reason, wraps
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.eligibility import MODULE_HOOKS
from onehop.integrations.pyg.propagate import Task

_on = False


def switch(on: bool) -> None:
    """Turns the choice on or off; off, every layer keeps the order that PyG wrote down."""
    global _on
    _on = on


def may_choose(lin: Any, x: Any) -> bool:
    """Whether a linear step on these features, [N, F], can be done apart from its module unnoticed."""
    if (
        not _on
        or torch.compiler.is_compiling()
        or context_reason() is not None
        or type(x) is not Tensor
        or x.layout is not torch.strided
        or x.dim() != 2
        or type(lin) is not Linear
    ):
        return False
    weight = lin.weight
    return (
        not isinstance(weight, UninitializedParameter)
        and weight.dtype is x.dtype
        and not wraps(x)
        and not wraps(weight)
        and weight.size(1) == x.size(1)
        and "forward" not in lin.__dict__
        and not any(lin.__dict__[name] for name in MODULE_HOOKS)
        and _computes_plainly(x, weight)
    )


def _computes_plainly(x: Tensor, weight: Tensor) -> bool:
    """Whether both are on one device that has data, and autocast does not decide on their dtypes."""
    together = weight.is_cpu if x.is_cpu else weight.device == x.device and not x.is_meta
    return together and not autocasts(x)


def aggregating_first_pays(x: Tensor, weight: Tensor) -> bool:
    """Whether (A X) W aggregates fewer columns than A (X W), forward and backward."""
    first, last = _columns(x, weight)
    return first < last


def multiplying_first_pays(x: Tensor, weight: Tensor) -> bool:
    """Whether A (X W) aggregates fewer columns than (A X) W, forward and backward."""
    first, last = _columns(x, weight)
    return last < first


def _columns(x: Tensor, weight: Tensor) -> tuple[int, int]:
    """Columns that are aggregated if A X comes first, and if X W does.

    The gradient of an aggregation is one too; it is computed where what was aggregated needs a gradient.
    """
    recording = torch.is_grad_enabled()
    of_x = recording and x.requires_grad
    of_product = recording and (x.requires_grad or weight.requires_grad)
    after, before = weight.shape
    return before * (1 + of_x), after * (1 + of_product)


def kept(x: Tensor, factor: Tensor | None, edges: int) -> bool:
    """Tell if the aggregate of these features is, or is about to be, kept: then it costs nothing."""
    return reuse.constant(x, factor, edges) and reuse.trained_on(x)


def multiplied_first(
    x: Tensor, weight: Tensor, bias: Tensor | None, factor: Tensor | None, edges: int
) -> Tensor:
    """X W^T + b, to be aggregated; of features whose aggregate may be kept, a backward pass is noted."""
    return product(x, weight, bias, reuse.note_training if reuse.constant(x, factor, edges) else None)


def linear(task: Any) -> bool:
    """Tell if a task goes with a linear step in either order.

    Weights of a wider dtype do not: in PyG they widen the messages, and a linear step after that raises.
    """
    return (
        isinstance(task, Task)
        and task.reduce in ("sum", "mean")
        and task.subtrahend is None
        and task.x.dim() == 2
        and (task.weight is None or torch.promote_types(task.x.dtype, task.weight.dtype) == task.x.dtype)
    )


def is_finite(made: Tensor) -> bool:
    """Tell if all entries of what comes first are finite; sums that overflow count as infinite too.

    An infinite or missing feature of a node that sends to nobody is in no aggregate, but in the product; and
    0 times infinity, in a gradient, is NaN. So where anything is not finite, the layer's own order is kept.
    """
    return math.isfinite(float(made.detach().sum()))


def told(task: Task, layer: Any, order: str | None) -> None:
    """Notes what is about to run, for ``explain``, with the order; None if it is the layer's own."""
    memory.gained(task.x)
    if reports.recording():
        call = task.described(layer)
        form = call.form if order is None else f"{call.form}, {order} its linear step"
        reports.record(dataclasses.replace(call, form=form))


def normalised(
    layer: Any,
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    add_self_loops: bool,
    improved: bool = False,
) -> tuple[Any, Any]:
    """Edges and weights as GCN normalises them, from the memory that all layers share."""
    from torch_geometric.nn.conv import gcn_conv

    found = gcn_conv.gcn_norm(
        edge_index, edge_weight, x.size(0), improved, add_self_loops, layer.flow, x.dtype
    )
    return found[0], found[1]
