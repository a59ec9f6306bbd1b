"""Sizes below which PyG's own steps are faster than making and recognising a graph."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.integrations import session
from onehop.integrations.pyg.edges.matrices import LAYOUTS
from onehop.integrations.pyg.edges.sparse_tensors import is_sparse_tensor
from onehop.ops.contexts import context_reason, is_wrapped

# In PyG, an edge of attention or of an extremum costs at least as much as this many edges of a sum.
_COST = 4
# An edge_index with fewer numbers than the bound of few edges divided by this is too small at any width.
_TINY = 4
_MATRIX = 2


def are_tiny(edge_index: Any) -> bool:
    """Return whether a list has so few edges that PyG's own code is as fast with any features.

    This is a single comparison, because compared with sums over few edges any further test takes noticeable
    time.
    """
    return (
        type(edge_index) is Tensor
        and edge_index.numel() < thresholds.now.few_edges // _TINY
        and not session.now.settings.backend
    )


def is_too_small(
    edge_index: Any,
    operand: Any,
    columns: int | None = None,
    attends: bool = False,
    costly: bool = False,
    listed: bool = False,
    loops: bool = False,
) -> bool:
    """Return whether a graph is so small that making and recognising it costs more than it saves.

    Only sizes decide, and not whether the graph was used before. Otherwise the second forward pass could give
    other bits than the first, and activation checkpointing would save other tensors the second time.

    Args:
        edge_index: [2, E], or a sparse matrix of torch or torch_sparse.
        operand: The sources' features, or a pair whose first entry they are; None if they are not computed
            yet.
        columns: How many columns are aggregated, if that may be fewer than the features have; None means all.
        attends: Whether attention weights the messages; then the operand is [N, H, C]. Otherwise an operand
            of more than two dimensions is [..., N, F].
        costly: Whether PyG takes several times as long as for a sum, as for attention and extrema.
        listed: Whether native code can run on the list of edges if they are few. Otherwise PyG's code runs.
        loops: Whether a self loop is added at every row of the operand.
    """
    bounds = thresholds.now
    # This is the hot path of small graphs.
    if type(edge_index) is Tensor:
        if edge_index.numel() < bounds.few_edges // _TINY:  # this is are_tiny(), without a call
            return not session.now.settings.backend
        shape = edge_index.shape
        if len(shape) != _MATRIX:
            return False
        edges = shape[1] if edge_index.layout is torch.strided else number_of_edges(edge_index)
    elif is_sparse_tensor(edge_index):
        edges = edge_index.nnz()
    else:
        return False
    # If a machine or backend was chosen, it runs every aggregation.
    if edges >= bounds.few_edges or session.now.settings.backend:
        return False
    if listed and type(edge_index) is Tensor and edge_index.layout is torch.strided:
        work = bounds.listed_work
    else:
        work = bounds.few_work
        if attends or costly:
            edges *= _COST
            if edges >= bounds.few_edges:
                return False
    if operand is None:
        return columns is not None and edges * columns < work
    pair = type(operand) is tuple or type(operand) is list
    x = operand[0] if pair and operand else operand
    if not isinstance(x, Tensor):
        return False
    shape = x.shape
    if len(shape) < _MATRIX:
        return False
    rows, width = shape[0 if attends else -2], shape[-1]
    if len(shape) > _MATRIX:
        width = x.numel() // (rows or 1)
    if loops:
        edges += rows
        if edges >= bounds.few_edges:
            return False
    return edges * (width if columns is None else min(width, columns)) < work


def has_small_messages(edge_index: Any, operands: Iterable[Any]) -> bool:
    """Return whether a graph is too small for messages that read these operands of ``propagate``."""
    width = 0
    for operand in operands:
        for tensor in operand if type(operand) is tuple or type(operand) is list else (operand,):
            if isinstance(tensor, Tensor) and tensor.dim():
                width = max(width, tensor.numel() // (tensor.shape[0] or 1))
    return is_too_small(edge_index, None, width)


def number_of_edges(edge_index: Any) -> int:
    """Return the number of edges of an ``edge_index``, [2, E], or a sparse matrix."""
    if is_sparse_tensor(edge_index):
        return int(edge_index.nnz())
    # Inside a torch.func transform, the number of entries cannot be read; such tensors are refused later.
    knows = edge_index.layout in LAYOUTS and not is_wrapped(edge_index) and context_reason() is None
    return int(edge_index._nnz() if knows else edge_index.size(-1))
