"""Products of a sparse matrix and a dense one, as sums over the matrix's graph: COO, CSR and CSC.

torch calls these kernels for ``torch.sparse.mm``, ``torch.mm``, ``torch.spmm``, ``@``, ``mv`` and ``addmm``,
and for the gradients of all of them to the dense operand. The edges are recognised, and the values are read at
each call. Where a function returns None, torch's kernel runs.
"""

import torch
from torch import Tensor

from onehop.calls import Aggregate
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
    if left.layout is torch.strided:
        out = _over_edges(right, left, from_right=True)
    else:
        out = _over_edges(left, right, from_right=False)
    if out is None or added is None or not is_added:
        return out
    if added.layout is not torch.strided or added.dtype is not out.dtype:
        return None
    return out.add_(added)


def _over_edges(matrix: Tensor, dense: Tensor, from_right: bool) -> Tensor | None:
    """[N, M]: matrix @ dense; or dense @ matrix, if the matrix comes from the right."""
    if not _suit(matrix, dense):
        return None
    x = dense.t() if from_right else dense
    values = matrix._values() if matrix.layout is torch.sparse_coo else matrix.values()
    if values.dim() != 1:
        return None
    graph = graph_of(matrix, recognised(matrix), turned=from_right)
    if graph is None or graph.num_src != x.size(0):
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
    return out.t() if matrix.layout is torch.sparse_coo else out.t().contiguous()


def _suit(matrix: Tensor, dense: Tensor) -> bool:
    return (
        dense.layout is torch.strided
        and matrix.layout in LAYOUTS
        and matrix.dtype is dense.dtype
        and matrix.dtype in _DTYPES
        and matrix.dim() == 2
        and dense.dim() == 2
        and dense.numel() > 0
        and is_numbers(dense)
    )


def transpose(matrix: Tensor, first: int, second: int) -> Tensor | None:
    """The transpose of a COO matrix that was multiplied before, as backward passes need it."""
    is_matrix = type(matrix) is Tensor and matrix.dense_dim() == 0 and matrix.dtype in _DTYPES
    return transposed(matrix) if is_matrix and {first % 2, second % 2} == {0, 1} else None


SERVED = {
    "mm": Served(product, "sparse mm"),
    "addmm": Served(product, "sparse addmm"),
    "transpose": Served(transpose, "sparse transpose"),
}
"""By the operator's name, at the dispatch keys of sparse matrices."""
