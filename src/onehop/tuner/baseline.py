"""What torch itself offers for the same operation: its sparse CSR, with the matrix made ready beforehand."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from onehop.graph import Graph

_REDUCE = {"max": "amax", "min": "amin"}


def torch_csr(
    graph: Graph, op: str, reduce: str, transposed: bool, width: int, dtype: torch.dtype
) -> Callable[[], Tensor] | None:
    """A call of ``torch.sparse.mm`` that computes the same; None where torch has none.

    The transposed matrix is made ready too, which torch's own backward pass does anew in every call.
    """
    if op != "aggregate" or dtype not in (torch.float32, torch.float64):
        return None
    if reduce in _REDUCE and transposed:
        return None  # the gradient of its extrema takes another way
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
