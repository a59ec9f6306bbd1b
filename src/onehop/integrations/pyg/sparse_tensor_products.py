"""Products with a SparseTensor, as PyG's ``spmm`` computes them.

Features of two dimensions and values that need no gradient go to torch's own product, in the dtype of the
features. Everything else goes to torch_sparse: a gradient reaches each value, repeated entries too, and an
extremum compares numbers with the one before, so that NaN and infinities get lost.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.integrations.pyg.conditions import LEFT_TO_PYG
from onehop.integrations.pyg.graphs import degree_scale_of
from onehop.integrations.pyg.sparse_tensors import are_ones

_MATRIX, _BATCHED = 2, 3


def product_reason(adj_t: Any, x: Tensor, values: Tensor | None, reduce: str) -> str | None:
    """Return why PyG's product with a SparseTensor is left to PyG; None if it is not.

    Args:
        adj_t: [num_dst, num_src].
        x: [num_src, F] or [B, num_src, F].
        values: [E], its values; None if it has none, or the product ignores them.
        reduce: "sum", "mean", "max" or "min".
    """
    # Of no entries at all PyG gives zeros that need no gradient.
    if adj_t.nnz() == 0:
        return LEFT_TO_PYG
    if values is not None and values.dim() != 1:
        return "edge_index is a SparseTensor whose values have further dimensions"
    if x.dim() != _MATRIX and not (x.dim() == _BATCHED and reduce in ("sum", "mean")):
        return LEFT_TO_PYG
    return None


def factors_of(
    values: Tensor | None, graph: Graph, reduce: str, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The weight and the scale that are equivalent to a SparseTensor's values.

    Args:
        values: [E], or None.
        graph: The edges.
        reduce: How messages are reduced.
        dtype: That of the features.

    Returns:
        [E] of that dtype, or None where every edge counts as it is; [N] or None.
    """
    if values is None:
        return None, None
    if values.requires_grad:
        return values.to(dtype), None
    # PyG rounds values to the dtype of the features first.
    if reduce in ("sum", "mean") and values.dtype is dtype:
        scale = degree_scale_of(values, graph)
        if scale is not None:
            return None, scale
    return None if are_ones(values) else values.to(dtype), None
