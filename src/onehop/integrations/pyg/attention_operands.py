"""The operands of attention layers: conditions that recipes share, and the factors of PyG's dropout."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import dropout

from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.attention_task import Propagation
from onehop.integrations.pyg.conditions import FLOATS, LEFT_TO_PYG, backend_reason
from onehop.ops.contexts import in_older_vmap, is_wrapped, wraps
from onehop.ops.dropout import factors, serves


def pair_of(call: Propagation, name: str, dims: int = 3) -> tuple[Tensor | None, Tensor | None] | str:
    """The features of sources and destinations; notes their numbers of rows as PyG does."""
    operand = call.operands[name]
    if type(operand) is not tuple or len(operand) != 2:
        return f"{name} is not a pair"
    for end, tensor in enumerate(operand):
        if tensor is None:
            continue
        if not is_feature(call, tensor, dims):
            return f"the operands {name} {_unfit(call, dims)}"
        reason = backend_reason(tensor, call.backend) if call.backend or not tensor.is_cpu else None
        if reason is not None:
            return reason
        known = call.sizes[end]
        if known is None:
            call.sizes[end] = tensor.size(0)
        elif known != tensor.size(0):
            return LEFT_TO_PYG
    if call.sending == 1 and None not in call.sizes and call.sizes[0] != call.sizes[1]:
        return "bipartite features meet flow='target_to_source'"
    return operand


def is_feature(call: Propagation, tensor: Any, dims: int) -> bool:
    """Return whether an operand is a dense floating-point tensor of so many dimensions, beside the edges."""
    return (
        (type(tensor) is Tensor or type(tensor) is Parameter)
        and tensor.dtype in FLOATS
        and ((tensor.is_cpu and call.edges.is_cpu) or tensor.device == call.edges.device)
        and tensor.layout is torch.strided
        and tensor.dim() == dims
        and not is_wrapped(tensor)
        and not (in_older_vmap() and wraps(tensor))
    )


def dtypes_reason(call: Propagation, dims: int, x: Any, *others: Any) -> str | None:
    """Return why scores of these features cannot be computed here; None if they can."""
    if not is_feature(call, x, dims):
        return f"the features {_unfit(call, dims)}"
    reason = backend_reason(x, call.backend)
    if reason is not None:
        return reason
    reason = alike_reason(x, x.dtype, others)
    if reason is not None:
        return reason
    if dims == 2 and call.layer.node_dim not in (-2, 0):
        return "node_dim is not the first of two dimensions"
    return None


def alike_reason(x: Tensor, dtype: torch.dtype, others: Sequence[Any]) -> str | None:
    """Return why operands do not go together; None if all are of one dtype, where x is."""
    if any(not isinstance(other, Tensor) or other.dtype is not dtype for other in others):
        return "its features and parameters differ in dtype"
    if any(other.device != x.device for other in others):
        return "its features and parameters are on different devices, which PyG is left to report"
    return None


def _unfit(call: Propagation, dims: int) -> str:
    where = call.edges.device
    return f"are no dense floating-point tensors of {dims} dimensions on {where}, where edge_index is"


def dropout_factors(layer: Any, graph: Graph, like: Tensor) -> Tensor:
    """[E, H]: the factors of PyG's dropout, drawn as PyG would draw them now."""
    return filled_with_factors(like.new_empty((graph.num_edges, like.size(1))), layer.dropout)


def filled_with_factors(out: Tensor, p: float) -> Tensor:
    """The factors of dropout for numbers that lie as those of ``out`` do, which may be overwritten."""
    if session.now.settings.dropout and serves(out, p):
        return factors(out, p)
    return dropout(torch.ones_like(out), p=p, training=True)
