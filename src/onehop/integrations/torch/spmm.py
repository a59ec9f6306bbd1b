"""torch_sparse's products where torch dispatches them, so those of ``SparseTensor``: sums and means.

Each function takes the arrays of an operator, and returns None where torch_sparse has to run. It runs above
autograd, which records it.
"""

from functools import partial

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.integrations.torch.served import Served
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import context_reason, is_memory

PACKAGE = "torch_sparse"
_DTYPES = (torch.float32, torch.float64)


def _product(reduce: str, rowptr: Tensor, col: Tensor, value: Tensor | None, x: Tensor) -> Tensor | None:
    """The product of a matrix, [N, K], and x, [K, M].

    Args:
        reduce: "sum", or "mean", which is divided by the number of a row's entries.
        rowptr: [N + 1], int64.
        col: [E], int64.
        value: [E]; None means 1.
        x: [K, M].
    """
    operands = (x,) if value is None else (x, value)
    suit = all(each.dtype is x.dtype and is_memory(each) for each in operands)
    if not suit or context_reason() is not None or x.dtype not in _DTYPES or x.dim() != 2 or col.numel() == 0:
        return None
    if value is not None and value.dim() != 1:
        return None
    columns = x.size(0)
    graph = remembered(
        rowptr, col, key=("product", PACKAGE, columns), make=lambda: Graph.from_csr(rowptr, col, columns)
    )
    return reduce_rows(graph, x, weight=value, reduce=reduce)


SERVED = {
    f"{PACKAGE}::spmm_{reduce}": Served(partial(_product, reduce), f"{PACKAGE}.spmm_{reduce}")
    for reduce in ("sum", "mean")
}
"""By the operator's name."""
