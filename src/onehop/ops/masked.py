"""Rows that a mask selects, ``x[mask]``, and the reverse, without a list of row numbers."""

import math
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.native import address, extension


def taken(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Return ``x[mask]``, the rows of a CPU tensor that a mask selects, without a gradient.

    Args:
        x: [..., *M, ...], contiguous.
        mask: [*M], bool. Its owner may write to it at any time, also in another thread.
        dim: The dimension of ``x`` that corresponds to the mask's first dimension.

    Returns:
        [..., n, ...] for n true entries.
    """
    mask = mask.contiguous()
    call = _call(x.shape, x.element_size(), mask, dim)
    call.taken = extension.count_true(call)
    out = torch.empty((*x.shape[:dim], call.taken, *x.shape[dim + mask.dim() :]), dtype=x.dtype, device="cpu")
    if extension.take_masked(call, address(x), address(out)):
        return out
    # Another thread wrote to the mask after its entries were counted, so a copy of the mask is used.
    return taken(x, mask.clone(), dim)


def put(rows: Tensor, mask: Tensor, dim: int, shape: torch.Size) -> Tensor | None:
    """Put rows, [..., n, ...], where the mask is true, and zeros elsewhere.

    Returns:
        [..., *M, ...]; None if the mask does not have n true entries.
    """
    rows, mask = rows.contiguous(), mask.contiguous()
    out = torch.empty(shape, dtype=rows.dtype, device="cpu")
    call = _call(shape, rows.element_size(), mask, dim)
    call.taken = rows.size(dim)
    return out if extension.put_masked(call, address(rows), address(out)) else None


def _call(shape: torch.Size, entry_bytes: int, mask: Tensor, dim: int) -> Any:
    call = extension.MaskedRows()
    call.mask, call.rows = address(mask), mask.numel()
    call.blocks = math.prod(shape[:dim])
    call.row_bytes = math.prod(shape[dim + mask.dim() :]) * entry_bytes
    call.threads = native.threads()
    return call
