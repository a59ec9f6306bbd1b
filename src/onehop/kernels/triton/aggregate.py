"""Sum and mean on the GPU, forward and backward: the gradient to x is the sum over the transposed graph."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.item_tiles import (
    columns_of,
    edge_weights,
    item_rows,
    next_edges,
    other_ends,
    store_columns,
    tile_items,
)
from onehop.kernels.triton.launch import (
    Bucket,
    Items,
    accumulator,
    buckets,
    features,
    fix_up,
    items_of,
    on_device_of,
    options,
    rows_of,
    slots_of,
)
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count"])
def sum_kernel(
    items,
    x_ptr,
    weight_ptr,
    src_scale_ptr,
    dst_scale_ptr,
    out_ptr,
    partial_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A tile [ROWS, EDGES, FEATURES] iterates over the edges of ROWS items, EDGES of each at a time."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        value = columns_of(x_ptr, source, live, column, X_STRIDE, WIDTH).to(ACC)
        if weight_ptr is not None:
            value *= edge_weights(items, weight_ptr, at, live, column, WIDTH, HEADS)
        if src_scale_ptr is not None:
            value *= tl.load(src_scale_ptr + source, mask=live, other=0)[:, :, None]
        total += value
    result = tl.sum(total, axis=1)
    row, slot = item_rows(items, item, there, SPLIT)
    if SPLIT:
        store_columns(partial_ptr, slot, there & (slot >= 0), result, column, WIDTH)
    whole = there & (slot < 0)
    if dst_scale_ptr is not None:
        result *= tl.load(dst_scale_ptr + row, mask=whole, other=0)[:, None]
    store_columns(out_ptr, row, whole, result, column, WIDTH)


def aggregate(
    work: Work,
    plan: TritonPlan,
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    widen: bool,
) -> Tensor:
    """The sum over every row's edges.

    Args:
        work: The graph's items, on the device of x.
        plan: The kernels' parameters.
        x: [cols, F].
        weight: [E] or [E, H] in the caller's edge order, of the accumulator's dtype; column h of the latter
            weighs the h-th of H equal groups of x's columns.
        src_scale: [cols], of the accumulator's dtype.
        dst_scale: [rows], likewise.
        widen: Return the accumulator's dtype instead of x's.

    Returns:
        [rows, F].
    """
    acc, width = accumulator(x.dtype), x.size(1)
    out = x.new_empty((work.rows, width), dtype=acc if widen else x.dtype)
    if out.numel() == 0:
        return out
    x = rows_of(x)
    weight = None if weight is None else weight.contiguous()
    partial = x.new_empty((work.slots, width), dtype=acc) if work.slots else None
    scales = (src_scale, dst_scale)
    with on_device_of(x):
        for bucket in buckets(work, plan):
            _launch(bucket, plan, items_of(work, weight is not None), x, weight, scales, out, partial)
        if partial is not None:
            add_slots(work, plan, partial, dst_scale, out)
    return out


def add_slots(work: Work, plan: TritonPlan, partial: Tensor, dst_scale: Tensor | None, out: Tensor) -> None:
    """Fills the rows of ``out`` that were split with the sums of their slots, in the order of the slots."""
    for merge in work.merges:
        sums = merge.next_slots(partial)
        _launch(fix_up(merge, plan), plan, slots_of(merge), partial, None, (None, dst_scale), out, sums)
        partial = partial if sums is None else sums


def _launch(
    bucket: Bucket,
    plan: TritonPlan,
    items: Items,
    x: Tensor,
    weight: Tensor | None,
    scales: tuple[Tensor | None, Tensor | None],
    out: Tensor,
    partial: Tensor | None,
) -> None:
    width = x.size(1)
    tile = features(plan, width)
    sum_kernel[(bucket.programs, -(-width // tile))](
        items,
        *(x, weight, *scales, out, partial),
        bucket.first,
        bucket.count,
        WIDTH=width,
        X_STRIDE=x.stride(0),
        HEADS=1 if weight is None or weight.dim() == 1 else weight.size(1),
        SPLIT=bucket.split,
        ROWS=bucket.rows,
        EDGES=bucket.edges,
        FEATURES=tile,
        STAGES=plan.num_stages,
        **options(plan),
    )
