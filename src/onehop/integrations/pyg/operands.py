"""The operands of one propagation: what is gathered, how many rows come out, and what does not fit.

Whatever PyG would complain about is refused here without a word of our own, so that PyG's error appears.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric import EdgeIndex

from onehop.integrations.contexts import WRAPPED, wraps
from onehop.integrations.pyg.recognise import Form

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

LEFT_TO_PYG = "PyG is left to report what does not fit"


def edges_of(layer: Any, edge_index: Any, size: Any, fuses: bool) -> tuple[Tensor, list[int | None]] | str:
    """The [2, E] tensor of the edges and the sizes that the caller gave."""
    if type(edge_index) is Tensor:
        data = edge_index
        if data.layout is not torch.strided:
            return "edge_index is a sparse matrix, for which PyG has its own code"
        if wraps(data):
            return WRAPPED
        sizes: list[int | None]
        if size is None:
            sizes = [None, None]
        elif isinstance(size, tuple | list) and len(size) == 2:
            sizes = list(size)
        else:
            return LEFT_TO_PYG
    elif type(edge_index) is EdgeIndex:
        if fuses and layer.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col:
            return "edge_index is an EdgeIndex, for which this layer has its own code"
        data = edge_index.as_tensor()
        sizes = [edge_index.num_rows, edge_index.num_cols]
    else:
        return f"edge_index is of type {type(edge_index).__name__}"
    if (
        (data.dtype is not torch.int64 and data.dtype is not torch.int32)
        or data.dim() != 2
        or data.size(0) != 2
    ):
        return LEFT_TO_PYG
    return data, sizes


def source_of(layer: Any, operand: Any, sizes: list[int | None], forwards: bool) -> Tensor | str:
    """The features that are gathered; notes the numbers of rows in ``sizes`` as PyG does."""
    dim = layer.node_dim
    if isinstance(operand, tuple | list):
        if len(operand) != 2:
            return LEFT_TO_PYG
        source, target = operand
        if not forwards and target is not source:
            return "bipartite features meet flow='target_to_source'"
        reason = features_reason(source, dim)
        if reason is not None:
            return reason
        if not fits(sizes, 0, source.size(dim)):
            return LEFT_TO_PYG
        if target is not None:
            if not isinstance(target, Tensor) or target.dim() < 2:
                return "the destinations' features are no matrix"
            if not fits(sizes, 1, target.size(dim)):
                return LEFT_TO_PYG
        return source  # type: ignore[no-any-return]
    reason = features_reason(operand, dim)
    if reason is not None:
        return reason
    if not fits(sizes, 0 if forwards else 1, operand.size(dim)):
        return LEFT_TO_PYG
    return operand  # type: ignore[no-any-return]


def features_reason(x: Any, node_dim: int) -> str | None:
    """Why such features have no fast path on any device; None if they have."""
    if type(x) is not Tensor and type(x) is not Parameter:
        return f"the features are of type {type(x).__name__}"
    if x.dtype not in FLOATS:
        return "the features are not floating-point numbers of 16, 32 or 64 bits"
    if x.layout is not torch.strided:
        return "the features are sparse"
    if wraps(x):
        return WRAPPED
    dims = x.dim()
    if not (dims == 2 and node_dim in (-2, 0)) and not (dims == 3 and node_dim == -2):
        return "node_dim is not the first of two dimensions, nor the middle one of three"
    return None


def weight_of(form: Form, kwargs: dict[str, Any], edges: int) -> tuple[Tensor | None, str | None]:
    """The weight, one number an edge, or None; in the second place, why it has no fast path."""
    weight = kwargs[form.weight] if form.weight is not None else None
    if weight is None:
        return None, "PyG is left to report the missing weight" if form.weight_required else None
    if type(weight) is not Tensor and type(weight) is not Parameter:
        return None, f"the edge weight is of type {type(weight).__name__}"
    if weight.dtype not in FLOATS or weight.layout is not torch.strided:
        return None, "the edge weight is not a dense floating-point tensor"
    if wraps(weight):
        return None, WRAPPED
    if weight.dim() == 2 and weight.size(1) == 1:
        weight = weight.squeeze(1)
    if weight.dim() != 1 or weight.size(0) != edges:
        return None, "the edge weight is not one number an edge"
    return weight, None


def difference_reason(
    layer: Any,
    subtrahend: Any,
    source: Tensor,
    reduce: str,
    sizes: list[int | None],
    forwards: bool,
) -> str | None:
    """Why a message that subtracts the destinations' features has no fast path; None if it has."""
    reason = features_reason(subtrahend, layer.node_dim)
    if reason is not None:
        return reason
    if not fits(sizes, 1 if forwards else 0, subtrahend.size(layer.node_dim)):
        return LEFT_TO_PYG
    if source.dim() != 2 or subtrahend.shape[1:] != source.shape[1:] or subtrahend.dtype is not source.dtype:
        return "source and destination features differ in width or dtype, or have three dimensions"
    if reduce not in ("sum", "mean"):
        return "differences are reduced by sum and mean alone"
    return None


def fits(sizes: list[int | None], dim: int, rows: int) -> bool:
    """Notes that dimension ``dim`` has ``rows`` rows; False if it is known to have another number."""
    known = sizes[dim]
    if known is None:
        sizes[dim] = rows
        return True
    return known == rows
