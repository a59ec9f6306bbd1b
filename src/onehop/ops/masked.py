"""Rows where a mask is true, ``x[mask]``, and back: no list of their numbers is made."""

import math
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.native import address, extension


def taken(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    """``x[mask]``: the rows of a tensor in the CPU's memory where a mask is true, without a gradient.

    Args:
        x: [..., *M, ...], without gaps.
        mask: [*M], bool. Its owner may write to it at any time, in another thread too.
        dim: The dimension of ``x`` that is the first of the mask.

    Returns:
        [..., n, ...] for n true entries.
    """
    mask = mask.contiguous()
    call = _call(x.shape, x.element_size(), mask, dim)
    call.taken = extension.count_true(call)
    out = torch.empty((*x.shape[:dim], call.taken, *x.shape[dim + mask.dim() :]), dtype=x.dtype, device="cpu")
    if extension.take_masked(call, address(x), address(out)):
        return out
    # Another thread wrote to the mask after its entries were counted: as it is at one moment.
    return taken(x, mask.clone(), dim)


def put(rows: Tensor, mask: Tensor, dim: int, shape: torch.Size) -> Tensor | None:
    """[..., *M, ...]: rows, [..., n, ...], where the mask is true, and zeros elsewhere.

    Returns:
        None if the mask has another number of true entries.
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
