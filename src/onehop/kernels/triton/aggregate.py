"""Sum and mean on the GPU, forward and backward: the gradient to x is the sum over the transposed graph."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import Aggregate, accumulator, heads_of
from onehop.kernels.triton.item_tiles import (
    columns_of,
    edge_weights,
    item_places,
    next_edges,
    other_ends,
    store_columns,
    tile_items,
)
from onehop.kernels.triton.launch import packed, rows_of, sweep
from onehop.kernels.triton.merges import Merge
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
    row, slot = item_places(items, item, there)
    if partial_ptr is not None:
        store_columns(partial_ptr, slot, there & (slot >= 0), result, column, WIDTH)
    whole = there & (slot < 0)
    if dst_scale_ptr is not None:
        result *= tl.load(dst_scale_ptr + row, mask=whole, other=0)[:, None]
    store_columns(out_ptr, row, whole, result, column, WIDTH)


def aggregate(work: Work, plan: TritonPlan, call: Aggregate) -> Tensor:
    """Return the sum of a call, [rows, F]; a scale has to divide for a mean; ``work`` is on x's device."""
    x, acc = call.x, accumulator(call.x.dtype)
    out = x.new_empty((work.rows, x.size(1)), dtype=acc if call.widen else x.dtype)
    if out.numel() == 0:
        return out
    partial = work.slots_like(out, acc)
    _sum(work, plan, rows_of(x), packed(call.weight), call.src_scale, call.dst_scale, out, partial)
    add_slots(work, plan, partial, call.dst_scale, out)
    return out


def add_slots(
    work: Work, plan: TritonPlan, partial: Tensor | None, dst_scale: Tensor | None, out: Tensor
) -> None:
    """Fills the rows of ``out`` that were split with the sums of their slots, in the order of the slots.

    ``partial`` is None if no row is split.
    """
    for merge in work.merges:
        assert partial is not None
        sums = merge.next_slots(partial)
        _sum(merge, plan, partial, None, None, dst_scale, out, sums)
        partial = sums


def _sum(
    over: Work | Merge, plan: TritonPlan, x: Tensor, weight: Tensor | None, *others: Tensor | None
) -> None:
    """Runs the kernel on tensors in the order of its parameters."""
    constants = {"X_STRIDE": x.stride(0), "HEADS": heads_of(weight)}
    numbered = weight is not None
    sweep(sum_kernel, over, plan, (x, weight, *others), x.size(1), numbered=numbered, **constants)
