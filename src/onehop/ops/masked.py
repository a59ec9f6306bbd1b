"""Rows where a mask is true, ``x[mask]``, and their gradients: no list of their numbers is made."""

import math
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.native import address, extension
from onehop.ops.contexts import has_memory


def taken(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    """``x[mask]``: the rows of a dense tensor in the CPU's memory where a mask is true.

    Args:
        x: [..., *M, ...], without gaps. Differentiable.
        mask: [*M], bool. Its owner may write to it at any time, in another thread too.
        dim: The dimension of ``x`` that is the first of the mask.

    Returns:
        [..., n, ...] for n true entries.
    """
    if x.requires_grad and torch.is_grad_enabled():
        out: Tensor = _Taken.apply(x, mask, dim)  # type: ignore[no-untyped-call]
        return out
    return _take(x, mask, dim)


def _take(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    mask = mask.contiguous()
    call = _call(x.shape, x.element_size(), mask, dim)
    call.taken = extension.count_true(call)
    out = torch.empty((*x.shape[:dim], call.taken, *x.shape[dim + mask.dim() :]), dtype=x.dtype, device="cpu")
    if extension.take_masked(call, address(x), address(out)):
        return out
    # Another thread wrote to the mask after its entries were counted: as it is at one moment.
    return _take(x, mask.clone(), dim)


def put(rows: Tensor, mask: Tensor, dim: int, shape: torch.Size) -> Tensor:
    """[..., *M, ...]: rows, [..., n, ...], where the mask is true, and zeros elsewhere."""
    rows, mask = rows.contiguous(), mask.contiguous()
    out = torch.empty(shape, dtype=rows.dtype, device="cpu")
    call = _call(shape, rows.element_size(), mask, dim)
    call.taken = rows.size(dim)
    if extension.put_masked(call, address(rows), address(out)):
        return out
    # The mask was written to, and has another number of true entries: torch broadcasts rows, or raises. Of a
    # copy, because torch too reads a mask several times.
    theirs: Tensor = torch.ops.aten.index_put(out.zero_(), [*[None] * dim, mask.clone()], rows, True)
    return theirs


def _call(shape: torch.Size, entry_bytes: int, mask: Tensor, dim: int) -> Any:
    call = extension.MaskedRows()
    call.mask, call.rows = address(mask), mask.numel()
    call.blocks = math.prod(shape[:dim])
    call.row_bytes = math.prod(shape[dim + mask.dim() :]) * entry_bytes
    call.threads = native.threads()
    return call


class _Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.dim, ctx.shape = dim, x.shape
        return _take(x, mask, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        if has_memory(grad):
            return _Put.apply(grad, mask, ctx.dim, ctx.shape), None, None  # type: ignore[no-untyped-call]
        # A batch of gradients, or what is watched.
        entries = mask.flatten()
        shape = (*ctx.shape[: ctx.dim], entries.numel(), *ctx.shape[ctx.dim + mask.dim() :])
        rows = grad.new_zeros(shape).index_add(ctx.dim, entries.nonzero().squeeze(1), grad)
        return rows.reshape(ctx.shape), None, None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, mask: Tensor, dim: int, shape: torch.Size) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.dim = dim
        return put(rows, mask, dim, shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (mask,) = ctx.saved_tensors
        if has_memory(grad):
            return taken(grad.contiguous(), mask, ctx.dim), None, None, None
        # Not flatten, for which torch's older batches of gradients have no rule.
        entries = grad.reshape(*grad.shape[: ctx.dim], mask.numel(), *grad.shape[ctx.dim + mask.dim() :])
        return entries.index_select(ctx.dim, mask.flatten().nonzero().squeeze(1)), None, None, None
