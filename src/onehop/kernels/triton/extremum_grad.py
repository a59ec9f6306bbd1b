"""Gradients of max and min on the GPU: every edge's message is recomputed and compared with the extremum."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.extremum import weighed
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
    item_rows,
    next_edges,
    other_ends,
    row_columns,
    store_columns,
    tile_items,
)
from onehop.kernels.triton.launch import buckets, features, items_of, on_device_of, options, rows_of
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count"])
def extremum_grad_source_kernel(
    items,
    x_ptr,
    extremum_ptr,
    share_ptr,
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
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes rows that are sources: each compares its messages with the extrema of its destinations."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row, slot = item_rows(items, item, there, SPLIT)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    own = row_columns(x_ptr, row, there, column, X_STRIDE, WIDTH).to(ACC)[:, None, :]
    total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        target = other_ends(items, at, live)
        extremum = columns_of(extremum_ptr, target, live, column, EXTREMUM_STRIDE, WIDTH).to(ACC)
        share = columns_of(share_ptr, target, live, column, WIDTH, WIDTH)
        message = own
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + caller_numbers(items, at, live), mask=live, other=0)[:, :, None]
            message = weighed(own, weight, ADDS)
            if not ADDS:
                share *= weight
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        # A product propagates shares that are not finite as NaN, as torch's does.
        total += (message == extremum).to(ACC) * share
    result = tl.sum(total, axis=1)
    if SPLIT:
        store_columns(partial_ptr, slot, there & (slot >= 0), result, column, WIDTH)
    store_columns(out_ptr, row, there & (slot < 0), result, column, WIDTH)


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
    """Processes rows that are destinations: every edge sums its parts of their shares, over all columns."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row, _ = item_rows(items, item, there, False)
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


def extremum_grad_source(
    work: Work,
    plan: TritonPlan,
    x: Tensor,
    weight: Tensor | None,
    extremum: Tensor,
    share: Tensor,
    adds: bool,
) -> Tensor:
    """The gradient of max or min with respect to x.

    Args:
        work: Work of the transposed graph.
        plan: The kernels' parameters.
        x: [num_src, F].
        weight: [E] in the caller's edge order, of the accumulator's dtype.
        extremum: [num_dst, F], the result.
        share: acc [num_dst, F], contiguous: the gradient divided among the ties.
        adds: Whether the weight was added instead of multiplied.

    Returns:
        acc [num_src, F].
    """
    width = x.size(1)
    out = share.new_empty((work.rows, width))
    if out.numel() == 0:
        return out
    x, extremum = rows_of(x), rows_of(extremum)
    weight = None if weight is None else weight.contiguous()
    partial = share.new_empty((work.slots, width)) if work.slots else None
    tile = features(plan, width)
    with on_device_of(x):
        for bucket in buckets(work, plan):
            extremum_grad_source_kernel[(bucket.programs, -(-width // tile))](
                items_of(work),
                *(x, extremum, share, weight, out, partial),
                bucket.first,
                bucket.count,
                WIDTH=width,
                X_STRIDE=x.stride(0),
                EXTREMUM_STRIDE=extremum.stride(0),
                ADDS=adds,
                ROUNDS=weight is not None and extremum.dtype == x.dtype,
                SPLIT=bucket.split,
                ROWS=bucket.rows,
                EDGES=bucket.edges,
                FEATURES=tile,
                STAGES=plan.num_stages,
                **options(plan),
            )
        if partial is not None:
            add_slots(work, plan, partial, None, out)
    return out


def extremum_grad_weight(
    work: Work, plan: TritonPlan, x: Tensor, weight: Tensor, extremum: Tensor, share: Tensor, adds: bool
) -> Tensor:
    """The gradient of max or min with respect to the weights: acc [E]; ``work`` is of the graph itself."""
    width = x.size(1)
    out = share.new_zeros(work.edges) if width == 0 else share.new_empty(work.edges)
    if width == 0 or work.edges == 0:
        return out
    x, extremum, weight = rows_of(x), rows_of(extremum), weight.contiguous()
    with on_device_of(x):
        for bucket in buckets(work, plan):
            extremum_grad_weight_kernel[(bucket.programs,)](
                items_of(work),
                *(x, extremum, share, weight, out),
                bucket.first,
                bucket.count,
                WIDTH=width,
                X_STRIDE=x.stride(0),
                EXTREMUM_STRIDE=extremum.stride(0),
                ADDS=adds,
                ROUNDS=extremum.dtype == x.dtype,
                ROWS=bucket.rows,
                EDGES=bucket.edges,
                FEATURES=features(plan, width),
                STAGES=plan.num_stages,
                **options(plan),
            )
    return out
