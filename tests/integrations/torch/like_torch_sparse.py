"""torch_sparse's operators of products in plain torch, for tests where it is not installed.

As torch_sparse does, it registers operators that are one kernel for all devices, above autograd.
"""

from typing import Any

import torch
from torch import Tensor

# Whose code the kernels are, which torch_sparse's are of its own library.
LIBRARY = "libtorch_python"
_LIBRARY = torch.library.Library("torch_sparse", "FRAGMENT")
_ARRAYS = "Tensor? row, Tensor rowptr, Tensor col, Tensor? value, "


def summed(rowptr: Tensor, col: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    rows = torch.repeat_interleave(rowptr.diff())
    messages = x.index_select(-2, col)
    if value is not None:
        messages = messages * value.unsqueeze(1)
    size = list(messages.shape)
    size[-2] = rowptr.numel() - 1
    return messages.new_zeros(size).index_add(-2, rows, messages)


def averaged(rowptr: Tensor, col: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    return summed(rowptr, col, value, x) / rowptr.diff().clamp(min=1).unsqueeze(1)


_OPERATORS: dict[str, tuple[str, Any]] = {
    "spmm_sum": (
        f"({_ARRAYS}Tensor? colptr, Tensor? csr2csc, Tensor mat) -> Tensor",
        lambda row, rowptr, col, value, colptr, order, x: summed(rowptr, col, value, x),
    ),
    "spmm_mean": (
        f"({_ARRAYS}Tensor? rowcount, Tensor? colptr, Tensor? csr2csc, Tensor mat) -> Tensor",
        lambda row, rowptr, col, value, count, colptr, order, x: averaged(rowptr, col, value, x),
    ),
}
for name, (schema, body) in _OPERATORS.items():
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, body, "CompositeImplicitAutograd")
