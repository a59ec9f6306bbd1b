"""Gradients of max and min on the GPU.

For each element, the forward pass saved the position in its row of the edge that reached the extremum. For an
edge at another position, the gradient to x reads only two bytes. If several edges tie, the extremum is NaN,
or a gradient is not finite (torch spreads such a gradient over the row), every message is compared with the
extremum again.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import ExtremumGrad
from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.extremum import weighed
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
    item_places,
    item_rows,
    next_edges,
    other_ends,
    row_columns,
    store_results,
    tile_items,
)
from onehop.kernels.triton.launch import on_device_of, packed, rows_of, sweep
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan

# The mark of elements whose messages are compared again.
COMPARED = tl.constexpr(0)
# The largest mark; marks have 16 bits. A single edge at a later position in its row is found by comparison.
LAST_MARK = tl.constexpr(2**16 - 1)
_BLOCK = 1024
_BLOCK_WARPS = 4


@triton.jit
def extremum_shares_kernel(grad_ptr, ties_ptr, extremum_ptr, share_ptr, mark_ptr, count, BLOCK: tl.constexpr):
    """Processes BLOCK elements: their gradients divided among ties, and their marks."""
    ACC: tl.constexpr = share_ptr.dtype.element_ty
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    saved = tl.load(ties_ptr + at, mask=there, other=1)
    extremum = tl.load(extremum_ptr + at, mask=there, other=0).to(ACC)
    edges = tl.where(saved < 0, 1, saved) + (extremum == 0).to(ACC)
    share = tl.load(grad_ptr + at, mask=there, other=0).to(ACC) / edges
    by_position = (saved < 0) & (saved >= -LAST_MARK) & (tl.abs(share) < float("inf"))
    mark = tl.where(by_position, -saved, COMPARED).to(tl.int32).to(tl.int16)
    tl.store(share_ptr + at, share, mask=there)
    tl.store(mark_ptr + at, mark, mask=there)


@triton.jit(do_not_specialize=["first", "count"])
def extremum_grad_source_kernel(
    items,
    x_ptr,
    extremum_ptr,
    share_ptr,
    mark_ptr,
    edge_mark_ptr,
    weight_ptr,
    out_ptr,
    partial_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    EXTREMUM_STRIDE: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes rows that are sources: each collects the shares of destinations whose extremum it is.

    ``mark_ptr``, with the layout of the shares, has the marks of elements; ``edge_mark_ptr`` has the marks of
    edges, in the order of the rows here.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row, slot = item_places(items, item, there)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    values = row_columns(x_ptr, row, there, column, X_STRIDE, WIDTH).to(ACC)[:, None, :]
    total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        target = other_ends(items, at, live)
        tile = live[:, :, None] & (column < WIDTH)[None, None, :]
        place = target[:, :, None] * WIDTH + column[None, None, :]
        mark = tl.load(mark_ptr + place, mask=tile, other=COMPARED)
        own_mark = tl.load(edge_mark_ptr + at, mask=live, other=COMPARED)[:, :, None]
        compared = tile & (mark == COMPARED)
        hit = tile & (mark == own_mark) & (mark != COMPARED)
        share = tl.load(share_ptr + place, mask=hit | compared, other=0)
        place = target[:, :, None] * EXTREMUM_STRIDE + column[None, None, :]
        extremum = tl.load(extremum_ptr + place, mask=compared, other=0).to(ACC)
        message = values
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + caller_numbers(items, at, live), mask=live, other=0)[:, :, None]
            message = weighed(values, weight, ADDS)
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        # As in torch, products turn values that are not finite into NaN.
        part = tl.where(compared, (message == extremum).to(ACC) * share, share)
        if weight_ptr is not None and not ADDS:
            part *= weight
        total += part
    store_results(out_ptr, partial_ptr, row, slot, there, tl.sum(total, axis=1), column, WIDTH)


@triton.jit(do_not_specialize=["first", "count"])
def extremum_grad_weight_kernel(
    items,
    x_ptr,
    extremum_ptr,
    share_ptr,
    weight_ptr,
    out_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    EXTREMUM_STRIDE: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes rows that are destinations: every edge sums its parts of the shares, over all columns."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row = item_rows(items, item, there)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        number = caller_numbers(items, at, live)
        weight = tl.load(weight_ptr + number, mask=live, other=0)[:, :, None]
        total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
        for ahead in range(0, WIDTH, FEATURES):
            column = ahead + tl.arange(0, FEATURES)
            value = columns_of(x_ptr, source, live, column, X_STRIDE, WIDTH).to(ACC)
            extremum = row_columns(extremum_ptr, row, there, column, EXTREMUM_STRIDE, WIDTH).to(ACC)
            share = row_columns(share_ptr, row, there, column, WIDTH, WIDTH)
            message = weighed(value, weight, ADDS)
            if ROUNDS:
                message = message.to(x_ptr.dtype.element_ty).to(ACC)
            part = (message == extremum[:, None, :]).to(ACC) * share[:, None, :]
            if not ADDS:
                part *= value
            tile = live[:, :, None] & (column < WIDTH)[None, None, :]
            total += tl.where(tile, part, 0)
        tl.store(out_ptr + number, tl.sum(total, axis=2), mask=live)


class Shares(NamedTuple):
    """Gradients divided among ties.

    Attributes:
        share: acc [num_dst, F], contiguous.
        mark: int16 [num_dst, F], the marks of elements: 1 + p if the single edge at position p of its row
            gets the whole share; 0 if messages must be compared.
    """

    share: Tensor
    mark: Tensor


def extremum_shares(call: ExtremumGrad) -> Shares:
    """Divides the gradients of a call among ties, in one pass over the destinations."""
    share, mark = torch.empty_like(call.ties), torch.empty_like(call.ties, dtype=torch.int16)
    count = share.numel()
    if count:
        with on_device_of(call.grad):
            extremum_shares_kernel[(-(-count // _BLOCK),)](
                *(call.grad.contiguous(), call.ties, call.extremum.contiguous(), share, mark),
                count,
                BLOCK=_BLOCK,
                num_warps=_BLOCK_WARPS,
            )
    return Shares(share, mark)


def extremum_grad_source(
    work: Work, plan: TritonPlan, call: ExtremumGrad, shares: Shares, edge_marks: Tensor
) -> Tensor:
    """Return the gradient of max or min with respect to x, acc [num_src, F].

    Args:
        work: The work of the transposed graph.
        plan: The kernels' parameters.
        call: The call.
        shares: The call's gradient, divided among the ties.
        edge_marks: int16 [E], in the order of the transposed graph: 1 + the position of the edge in its
            destination's row, in 16 bits; 0 for positions beyond the largest mark.
    """
    x, extremum, weight = rows_of(call.call.x), rows_of(call.extremum), call.call.weight
    out = shares.share.new_empty((work.rows, x.size(1)))
    if out.numel() == 0:
        return out
    partial = work.slots_like(out, out.dtype)
    sweep(
        extremum_grad_source_kernel,
        work,
        plan,
        (x, extremum, *shares, edge_marks, packed(weight), out, partial),
        x.size(1),
        numbered=weight is not None,
        X_STRIDE=x.stride(0),
        EXTREMUM_STRIDE=extremum.stride(0),
        ADDS=call.call.adds,
        ROUNDS=weight is not None and extremum.dtype == x.dtype,
    )
    add_slots(work, plan, partial, None, out)
    return out


def extremum_grad_weight(
    work: Work, plan: TritonPlan, call: ExtremumGrad, weight: Tensor, share: Tensor
) -> Tensor:
    """Return the gradient of max or min with respect to weights, acc [E]; ``work`` is of the graph itself."""
    x, extremum, weight = rows_of(call.call.x), rows_of(call.extremum), weight.contiguous()
    out = share.new_empty(work.edges)
    if x.size(1) == 0 or work.edges == 0:
        return out.zero_()
    sweep(
        extremum_grad_weight_kernel,
        work,
        plan,
        (x, extremum, share, weight, out),
        x.size(1),
        tiles=1,
        X_STRIDE=x.stride(0),
        EXTREMUM_STRIDE=extremum.stride(0),
        ADDS=call.call.adds,
        ROUNDS=extremum.dtype == x.dtype,
    )
    return out
