"""Max and min on the GPU, with the number of edges that reach them."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
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


@triton.jit
def weighed(x, weight, ADDS: tl.constexpr):
    """Messages: features with weights added, or multiplied by weights."""
    if ADDS:
        return x + weight
    else:
        return x * weight


@triton.jit(do_not_specialize=["first", "count"])
def extremum_kernel(
    items,
    x_ptr,
    weight_ptr,
    counts_ptr,
    out_ptr,
    ties_ptr,
    partial_ptr,
    partial_ties_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    LARGEST: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Keeps in every lane of a tile the extremum of its edges and the number of ties; NaN propagates.

    ``counts_ptr``, of the layout of x, holds the ties of each element of x if these are extrema themselves.
    With ROUNDS, messages are rounded to the dtype of x, as torch's are.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    WORST: tl.constexpr = float("-inf") if LARGEST else float("inf")
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    best = tl.full([ROWS, EDGES, FEATURES], WORST, ACC)
    ties = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        message = columns_of(x_ptr, source, live, column, X_STRIDE, WIDTH, WORST).to(ACC)
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + caller_numbers(items, at, live), mask=live, other=1)
            message = weighed(message, weight[:, :, None], ADDS)
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        if counts_ptr is None:
            reached = (live[:, :, None] & (column < WIDTH)[None, None, :]).to(ACC)
        else:
            reached = columns_of(counts_ptr, source, live, column, X_STRIDE, WIDTH)
        if LARGEST:
            better = message > best
        else:
            better = message < best
        ties = tl.where(better, reached, tl.where(message == best, ties + reached, ties))
        best = tl.where(better | (message != message), message, best)
    lost = tl.max((best != best).to(tl.int32), axis=1) > 0
    if LARGEST:
        result = tl.max(tl.where(best != best, WORST, best), axis=1)
    else:
        result = tl.min(tl.where(best != best, WORST, best), axis=1)
    result = tl.where(lost, float("nan"), result)
    ties = tl.sum(tl.where(best == result[:, None, :], ties, 0), axis=1)
    row, slot = item_rows(items, item, there, SPLIT)
    if SPLIT:
        piece = there & (slot >= 0)
        store_columns(partial_ptr, slot, piece, result, column, WIDTH)
        store_columns(partial_ties_ptr, slot, piece, ties, column, WIDTH)
    whole = there & (slot < 0)
    store_columns(out_ptr, row, whole, tl.where((end > begin)[:, None], result, 0), column, WIDTH)
    if ties_ptr is not None:
        store_columns(ties_ptr, row, whole, ties, column, WIDTH)


def extremum(
    work: Work,
    plan: TritonPlan,
    x: Tensor,
    weight: Tensor | None,
    largest: bool,
    widen: bool,
    with_ties: bool,
    adds: bool,
) -> tuple[Tensor, Tensor | None]:
    """The largest or smallest message of every row; 0 for rows without edges.

    Args:
        work: The graph's items, on the device of x.
        plan: The kernels' parameters.
        x: [cols, F].
        weight: [E] in the caller's edge order, of the accumulator's dtype.
        largest: Max if true; else min.
        widen: Return the accumulator's dtype instead of x's, and do not round messages to that of x.
        with_ties: Count the edges that reach it.
        adds: Messages are weight + x instead of weight * x.

    Returns:
        [rows, F], and, if requested, acc [rows, F]: number of edges that reach it, 0 where it is NaN.
    """
    acc, width = accumulator(x.dtype), x.size(1)
    shape = (work.rows, width)
    out = x.new_empty(shape, dtype=acc if widen else x.dtype)
    ties = x.new_empty(shape, dtype=acc) if with_ties else None
    if out.numel() == 0:
        return out, ties
    x = rows_of(x)
    weight = None if weight is None else weight.contiguous()
    partial = [x.new_empty((work.slots, width), dtype=acc) if work.slots else None for _ in range(2)]
    rounds = weight is not None and not widen

    def launch(bucket: Bucket, items: Items, x: Tensor, counts: Tensor | None, rounds: bool) -> None:
        tile = features(plan, width)
        extremum_kernel[(bucket.programs, -(-width // tile))](
            items,
            *(x, weight if counts is None else None, counts, out, ties),
            *(partial if counts is None else (None, None)),
            bucket.first,
            bucket.count,
            WIDTH=width,
            X_STRIDE=x.stride(0),
            LARGEST=largest,
            ADDS=adds,
            ROUNDS=rounds,
            SPLIT=bucket.split,
            ROWS=bucket.rows,
            EDGES=bucket.edges,
            FEATURES=tile,
            STAGES=plan.num_stages,
            **options(plan),
        )

    with on_device_of(x):
        for bucket in buckets(work, plan):
            launch(bucket, items_of(work), x, None, rounds)
        if partial[0] is not None:
            launch(fix_up(work, plan), slots_of(work), partial[0], partial[1], False)
    return out, ties
