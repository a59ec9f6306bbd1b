"""Choice of the cheaper order, and the conditions of moving a layer's linear step."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn.dense.linear import Linear

from onehop import thresholds
from onehop.graph.identity import CACHE
from onehop.graph.lending import is_shared, original
from onehop.integrations import session
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.sparse_tensors import is_sparse_tensor
from onehop.integrations.pyg.tasks import Task
from onehop.integrations.torch import sparse_features
from onehop.integrations.torch.products import may_choose as may_choose_library
from onehop.ops.contexts import (
    autocast_dtype,
    autocasts,
    context_reason,
    saving_is_watched,
    wraps,
)


def may_choose(lin: Any, x: Any, *others: Tensor) -> bool:
    """Return whether a linear step can be done apart from its module unnoticed, where no program is traced.

    Args:
        lin: The module.
        x: [N, F], its input.
        *others: What else the layer gets.
    """
    return (
        context_reason() is None
        and not saving_is_watched()
        and session.now.settings.associate
        and is_plain(lin, x, *others)
        # On another device the host has to wait to know whether what came first is finite.
        and (x.is_cpu or x.numel() >= thresholds.now.awaited_numbers)
    )


def is_plain(lin: Any, x: Any, *others: Tensor) -> bool:
    """Return whether a linear step is a product with a weight and no more; the context is not looked at.

    Args:
        lin: The module.
        x: [N, F], its input.
        *others: What else the layer gets.
    """
    if type(x) is not Tensor or x.layout is not torch.strided or x.dim() != 2 or type(lin) is not Linear:
        return False
    weight, state = lin.weight, lin.__dict__
    return (
        not isinstance(weight, UninitializedParameter)
        and not weight.is_inference()  # whatever it says of itself, it gets no gradient
        and (weight.dtype is x.dtype or _both_lowered(x, weight))
        and not wraps(x, weight, *others)
        and weight.size(1) == x.size(1)
        and "forward" not in state
        and not (
            state["_forward_hooks"]
            or state["_forward_pre_hooks"]
            or state["_backward_hooks"]
            or state["_backward_pre_hooks"]
        )
        # Both are on one device that has data, and elsewhere autocast does not decide on their dtypes.
        and (weight.is_cpu if x.is_cpu else weight.device == x.device and not x.is_meta)
        and (x.is_cpu or not autocasts(x))
    )


def _both_lowered(x: Tensor, weight: Tensor) -> bool:
    """Return whether autocast gives both its own dtype, so that theirs need not be the same."""
    return autocast_dtype(x) is not None and autocast_dtype(weight) is not None


def columns(x: Tensor, weight: Tensor) -> tuple[int, int]:
    """Columns that are aggregated, forward and backward, by (A X) W and by A (X W).

    The gradient of an aggregation is one too; it is computed where what was aggregated needs a gradient.
    """
    recording = torch.is_grad_enabled()
    of_x = recording and x.requires_grad
    of_product = recording and (x.requires_grad or weight.requires_grad)
    after, before = weight.shape
    return before * (1 + of_x), after * (1 + of_product)


def kept(x: Tensor, factor: Tensor | None, edges: int) -> bool:
    """Return whether the aggregate of these features is, or is about to be, kept: then it costs nothing.

    Not so where features are nearly all 0, for their product costs less than that of their aggregate.
    """
    return reuse.constant(x, factor, edges) and reuse.trained_on(x) and not nearly_zero(x)


def nearly_zero(x: Tensor) -> bool:
    """Return whether the product of these features is a sum over the few entries that are not 0."""
    return session.now.settings.products and may_choose_library() and sparse_features.apply(x)


def multiplied_first(
    x: Tensor, weight: Tensor, bias: Tensor | None, factor: Tensor | None, edges: int
) -> Tensor:
    """X W^T + b, to be aggregated; of features whose aggregate may be kept, a backward pass is noted."""
    return product(x, weight, bias, reuse.note_training if reuse.constant(x, factor, edges) else None)


def linear(task: Any) -> bool:
    """Return whether a task goes with a linear step in either order.

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
    """Return whether all entries of what comes first are finite; sums that overflow count as infinite too.

    An infinite or missing feature of a node that sends to nobody is in no aggregate, but in the product; and
    0 times infinity, in a gradient, is NaN. So where anything is not finite, the layer's own order is kept.
    Of a kept aggregate, it is found out once.
    """
    if (made.is_cpu and not is_shared(made)) or original(made) is made:
        return math.isfinite(float(made.detach().sum()))
    known: _Finite | None = CACHE.find(made, "finite")
    if known is None:
        known = _Finite(math.isfinite(float(made.detach().sum())))
        CACHE.store(made, "finite", known)
    return known.all


@dataclasses.dataclass(frozen=True, slots=True)
class _Finite:
    """A note on a kept aggregate: whether all of its entries are finite."""

    all: bool
    nbytes: int = 0


def normalised(
    layer: Any,
    x: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None,
    add_self_loops: bool,
    improved: bool = False,
) -> tuple[Any, Any]:
    """Edges and weights as GCN normalises them, from the memory that all layers share."""
    from torch_geometric.nn.conv import gcn_conv

    found = gcn_conv.gcn_norm(
        edge_index, edge_weight, x.size(0), improved, add_self_loops, layer.flow, x.dtype
    )
    return (found, None) if is_sparse_tensor(found) else (found[0], found[1])


def are_edges(edge_index: Any) -> bool:
    """Return whether edges are a tensor, sparse or not, or a SparseTensor: those that are looked at here."""
    return type(edge_index) is Tensor or is_sparse_tensor(edge_index)
