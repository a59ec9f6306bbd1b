"""PyG's means, extrema and softmax of few rows, without a graph of their index."""

from typing import Any

import torch
from torch import Tensor

from onehop.errors import IndexRangeError
from onehop.integrations import session
from onehop.integrations.pyg.edges.few import DTYPES
from onehop.integrations.torch.indexing import is_recorded
from onehop.native import WithoutMemoryError
from onehop.ops import few, few_attention
from onehop.ops.contexts import context_reason, is_numbers
from onehop.ops.few import EXTREMA, MOST_EDGES, FewRows

_NOT_SERVED = (IndexRangeError, WithoutMemoryError)
_MATRIX = 2


def reduced(src: Tensor, index: Any, dim: Any, num_rows: Any, reduce: str) -> Tensor | None:
    """Takes the mean or an extremum of rows by an index; None if PyG's code has to run.

    If autograd records the call, PyG runs means, for which it takes about as long, and extrema of tensors
    that are not matrices.
    """
    is_matrix = src.dim() == _MATRIX
    # If the result were a view with its own version, autograd would not see that it was written to.
    if is_recorded(src) and not (is_matrix and reduce in EXTREMA):
        return None
    if not _suit(src, index, dim, num_rows):
        return None
    try:
        out = few.aggregate(
            FewRows(index, num_rows), src if is_matrix else src.view(src.size(0), -1), None, reduce
        )
    except _NOT_SERVED:
        return None
    # PyG's result is not a view; autograd treats views differently.
    return out if is_matrix else torch.ops.aten._unsafe_view(out, (num_rows, *src.shape[1:]))


def softmax(src: Tensor, index: Any, ptr: Any, num_rows: Any, dim: Any) -> Tensor | None:
    """Computes the softmax of rows grouped by an index; None if PyG's code has to run."""
    if ptr is not None or not _suit(src, index, dim, num_rows):
        return None
    try:
        return few_attention.softmax(FewRows(index, num_rows), src)
    except _NOT_SERVED:
        return None


def _suit(src: Tensor, index: Any, dim: Any, num_rows: Any) -> bool:
    """Return whether native code can read the rows and the index as they are."""
    return (
        type(index) is Tensor
        and type(num_rows) is int
        and src.dtype in DTYPES
        and index.dtype is torch.int64
        and src.numel() > 0
        and index.shape == src.shape[:1]
        and index.shape[0] <= MOST_EDGES
        and 0 <= num_rows <= MOST_EDGES
        and dim in (0, -src.dim())
        and src.is_contiguous()
        and session.now.serves_functions
        and context_reason() is None
        and is_numbers(src)
        and is_numbers(index)
        and not torch.is_autocast_enabled("cpu")
    )
