"""Products of a sparse matrix and a dense one, as sums over the matrix's graph: COO, CSR and CSC.

torch calls these kernels for ``torch.sparse.mm``, ``torch.mm``, ``torch.spmm``, ``@``, ``mv`` and ``addmm``,
and for the gradients of all of them to the dense operand. The edges are recognised, and the values are read
at each call. Where a function returns None, torch's kernel runs.
"""

import torch
from torch import Tensor

from onehop.calls import Aggregate
from onehop.errors import ArgumentError
from onehop.integrations.torch.matrix_edges import graph_of, recognised, transposed
from onehop.integrations.torch.served import Served
from onehop.ops.aggregate import AGGREGATE
from onehop.ops.contexts import is_numbers

LAYOUTS = frozenset((torch.sparse_coo, torch.sparse_csr, torch.sparse_csc))
"""Layouts whose products run here."""

_DTYPES = (torch.float32, torch.float64)


def product(left: Tensor, right: Tensor, added: Tensor | None = None, is_added: bool = True) -> Tensor | None:
    """The product of two matrices, one of which is sparse, with a vector or matrix added.

    Args:
        left: [N, K], float32 or float64.
        right: [K, M], of the same dtype; so is ``added``.
        added: What broadcasts to [N, M]; None adds nothing.
        is_added: Whether ``added`` counts.
    """
    is_left = left.layout is not torch.strided
    matrix, dense = (left, right) if is_left else (right, left)
    if added is not None:
        shapes = right.shape[1:], (*left.shape[:1], *right.shape[1:])
        if added.layout is not torch.strided or added.dtype is not dense.dtype or added.shape not in shapes:
            return None
    out = _over_edges(matrix, dense, from_right=not is_left)
    return out if out is None or added is None or not is_added else out.add_(added)


def product_with_vector(matrix: Tensor, x: Tensor) -> Tensor | None:
    """The product, [N], of a compressed matrix, [N, K], and a vector, [K]."""
    out = _over_edges(matrix, x.unsqueeze(1), from_right=False) if x.dim() == 1 else None
    return None if out is None else out.squeeze(1)


def _over_edges(matrix: Tensor, dense: Tensor, from_right: bool) -> Tensor | None:
    """[N, M]: matrix @ dense; or dense @ matrix, if the matrix comes from the right."""
    if not suit(matrix, dense):
        return None
    x = dense.t() if from_right else dense
    values = matrix._values() if matrix.layout is torch.sparse_coo else matrix.values()
    if values.dim() != 1:
        return None
    try:
        graph = graph_of(matrix, recognised(matrix), turned=from_right)
    except ArgumentError:
        if matrix.layout is torch.sparse_coo:
            return None
        raise  # torch would read out of bounds
    if graph.num_src != x.size(0):
        return None
    call = Aggregate(
        x=x.contiguous(),
        weight=values.contiguous(),
        src_scale=None,
        dst_scale=None,
        graph=graph.number,
        rows=graph.num_dst,
        mean=False,
        widen=False,
        backend="",
    )
    out: Tensor = AGGREGATE(call, graph)
    if not from_right:
        return out
    # As torch's results are in memory.
    turned = out.t()
    return (
        turned if matrix.layout is torch.sparse_coo else turned.clone(memory_format=torch.contiguous_format)
    )


def suit(matrix: Tensor, dense: Tensor) -> bool:
    """Return whether the product of a sparse matrix and a dense one can run over a graph."""
    return (
        dense.layout is torch.strided
        and matrix.layout in LAYOUTS
        and matrix.dtype is dense.dtype
        and matrix.dtype in _DTYPES
        and matrix.dim() == 2
        and dense.dim() == 2
        and dense.numel() > 0
        and matrix._nnz() > 0
        and is_numbers(dense)
        and not matrix.is_inference()
    )


def transpose(matrix: Tensor, first: int, second: int) -> Tensor | None:
    """The transpose of a COO matrix that was multiplied before, as backward passes need it."""
    is_matrix = type(matrix) is Tensor and matrix.dense_dim() == 0 and matrix.dtype in _DTYPES
    return transposed(matrix) if is_matrix and {first % 2, second % 2} == {0, 1} else None


SERVED = {
    "mm": Served(product, "sparse mm"),
    "addmm": Served(product, "sparse addmm"),
    "mv": Served(product_with_vector, "sparse mv"),
    "transpose": Served(transpose, "sparse transpose"),
}
"""By the operator's name, at the dispatch keys of sparse matrices."""
