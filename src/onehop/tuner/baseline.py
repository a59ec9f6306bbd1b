"""The baseline of each operation: torch's sparse CSR, with the matrix built beforehand."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from onehop.graph import Graph

_REDUCE = {"max": "amax", "min": "amin"}


def torch_csr(
    graph: Graph, op: str, reduce: str, transposed: bool, width: int, dtype: torch.dtype
) -> Callable[[], Tensor] | None:
    """A call of ``torch.sparse.mm`` with the same result; None where torch has none.

    The transposed matrix is built beforehand too; torch's own backward pass builds it in every call.
    """
    if op != "aggregate" or dtype not in (torch.float32, torch.float64):
        return None
    if reduce in _REDUCE and transposed:
        return None  # the gradient of its extrema does not use sparse.mm
    csr = graph.transposed_csr if transposed else graph.csr
    values = torch.ones(csr.edges, dtype=dtype, device="cpu")
    if reduce == "mean":
        inverse = graph.inverse_in_degrees(dtype)
        values = inverse[csr.col] if transposed else inverse.repeat_interleave(csr.rowptr.diff())
    small = max(csr.edges, csr.rows, csr.cols) < 2**31  # MKL is fastest with 32 bits
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        matrix = torch.sparse_csr_tensor(
            csr.rowptr.int() if small else csr.rowptr,
            csr.col if small else csr.col.long(),
            values,
            (csr.rows, csr.cols),
            check_invariants=False,
            device=values.device,
        )
    x = torch.randn(csr.cols, width, generator=torch.Generator().manual_seed(0), device="cpu").to(dtype)
    if reduce in _REDUCE:
        return lambda: torch.sparse.mm(matrix, x, _REDUCE[reduce])
    return lambda: torch.sparse.mm(matrix, x)
