"""Max and min on the GPU, with the number of edges that reach them; and their gradients."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.launch import (
    Bucket,
    accumulator,
    buckets,
    features,
    fix_up,
    on_device_of,
    options,
    rows_of,
)
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count"])
def extremum_kernel(
    row_ptr,
    begin_ptr,
    end_ptr,
    slot_ptr,
    col_ptr,
    perm_ptr,
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
    """Every lane of a tile keeps the extremum of its edges and how many reach it; NaN stays once met.

    Without ``col_ptr`` the edges are rows of x themselves; ``counts_ptr`` says how often each was reached.
    With ROUNDS, messages are rounded to the dtype of x, as torch's are.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    WORST: tl.constexpr = float("-inf") if LARGEST else float("inf")
    head = first + tl.program_id(0) * ROWS
    item = head + tl.arange(0, ROWS)
    there = item < first + count
    begin = tl.load(begin_ptr + item, mask=there, other=0)
    end = tl.load(end_ptr + item, mask=there, other=0)
    longest = tl.load(end_ptr + head) - tl.load(begin_ptr + head)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    inside = column < WIDTH
    best = tl.full([ROWS, EDGES, FEATURES], WORST, ACC)
    ties = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        edge = begin[:, None] + step + tl.arange(0, EDGES)[None, :]
        live = edge < end[:, None]
        if col_ptr is None:
            source = edge
        else:
            source = tl.load(col_ptr + edge, mask=live, other=0)
        tile = live[:, :, None] & inside[None, None, :]
        offset = source.to(tl.int64)[:, :, None] * X_STRIDE + column[None, None, :]
        message = tl.load(x_ptr + offset, mask=tile, other=WORST).to(ACC)
        if weight_ptr is not None:
            if perm_ptr is None:
                number = edge.to(tl.int64)
            else:
                number = tl.load(perm_ptr + edge, mask=live, other=0).to(tl.int64)
            weight = tl.load(weight_ptr + number, mask=live, other=1)[:, :, None]
            if ADDS:
                message += weight
            else:
                message *= weight
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        if counts_ptr is None:
            reached = tile.to(ACC)
        else:
            reached = tl.load(counts_ptr + offset, mask=tile, other=0)
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
    row = tl.load(row_ptr + item, mask=there, other=0).to(tl.int64)
    if SPLIT:
        slot = tl.load(slot_ptr + item, mask=there, other=0).to(tl.int64)
        piece = (there & (slot >= 0))[:, None] & inside[None, :]
        offset = slot[:, None] * WIDTH + column[None, :]
        tl.store(partial_ptr + offset, result, mask=piece)
        tl.store(partial_ties_ptr + offset, ties, mask=piece)
        there = there & (slot < 0)
    result = tl.where((end > begin)[:, None], result, 0)
    offset = row[:, None] * WIDTH + column[None, :]
    mask = there[:, None] & inside[None, :]
    tl.store(out_ptr + offset, result.to(out_ptr.dtype.element_ty), mask=mask)
    if ties_ptr is not None:
        tl.store(ties_ptr + offset, ties, mask=mask)


@triton.jit(do_not_specialize=["first", "count"])
def extremum_grad_source_kernel(
    row_ptr,
    begin_ptr,
    end_ptr,
    slot_ptr,
    col_ptr,
    perm_ptr,
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
    """Rows are sources: each compares its messages with the extrema of its destinations once more."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    head = first + tl.program_id(0) * ROWS
    item = head + tl.arange(0, ROWS)
    there = item < first + count
    begin = tl.load(begin_ptr + item, mask=there, other=0)
    end = tl.load(end_ptr + item, mask=there, other=0)
    longest = tl.load(end_ptr + head) - tl.load(begin_ptr + head)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    inside = column < WIDTH
    row = tl.load(row_ptr + item, mask=there, other=0).to(tl.int64)
    own = tl.load(
        x_ptr + row[:, None] * X_STRIDE + column[None, :], mask=there[:, None] & inside[None, :], other=0
    ).to(ACC)
    total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        edge = begin[:, None] + step + tl.arange(0, EDGES)[None, :]
        live = edge < end[:, None]
        target = tl.load(col_ptr + edge, mask=live, other=0).to(tl.int64)[:, :, None]
        tile = live[:, :, None] & inside[None, None, :]
        extremum = tl.load(
            extremum_ptr + target * EXTREMUM_STRIDE + column[None, None, :], mask=tile, other=0
        ).to(ACC)
        share = tl.load(share_ptr + target * WIDTH + column[None, None, :], mask=tile, other=0)
        message = tl.broadcast_to(own[:, None, :], [ROWS, EDGES, FEATURES])
        if weight_ptr is not None:
            if perm_ptr is None:
                number = edge.to(tl.int64)
            else:
                number = tl.load(perm_ptr + edge, mask=live, other=0).to(tl.int64)
            weight = tl.load(weight_ptr + number, mask=live, other=0)[:, :, None]
            if ADDS:
                message += weight
            else:
                message *= weight
                share *= weight
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        # A product, in which shares that are not finite show as NaN, as torch's do.
        total += (message == extremum).to(ACC) * share
    result = tl.sum(total, axis=1)
    if SPLIT:
        slot = tl.load(slot_ptr + item, mask=there, other=0).to(tl.int64)
        piece = (there & (slot >= 0))[:, None] & inside[None, :]
        tl.store(partial_ptr + slot[:, None] * WIDTH + column[None, :], result, mask=piece)
        there = there & (slot < 0)
    tl.store(out_ptr + row[:, None] * WIDTH + column[None, :], result, mask=there[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["first", "count"])
def extremum_grad_weight_kernel(
    row_ptr,
    begin_ptr,
    end_ptr,
    col_ptr,
    perm_ptr,
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
    """Rows are destinations: every edge adds up its parts of their shares, over all columns."""
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    head = first + tl.program_id(0) * ROWS
    item = head + tl.arange(0, ROWS)
    there = item < first + count
    begin = tl.load(begin_ptr + item, mask=there, other=0)
    end = tl.load(end_ptr + item, mask=there, other=0)
    longest = tl.load(end_ptr + head) - tl.load(begin_ptr + head)
    row = tl.load(row_ptr + item, mask=there, other=0).to(tl.int64)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        edge = begin[:, None] + step + tl.arange(0, EDGES)[None, :]
        live = edge < end[:, None]
        source = tl.load(col_ptr + edge, mask=live, other=0).to(tl.int64)[:, :, None]
        if perm_ptr is None:
            number = edge.to(tl.int64)
        else:
            number = tl.load(perm_ptr + edge, mask=live, other=0).to(tl.int64)
        weight = tl.load(weight_ptr + number, mask=live, other=0)[:, :, None]
        total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
        for begin_column in range(0, WIDTH, FEATURES):
            column = begin_column + tl.arange(0, FEATURES)
            inside = column < WIDTH
            tile = live[:, :, None] & inside[None, None, :]
            value = tl.load(x_ptr + source * X_STRIDE + column[None, None, :], mask=tile, other=0).to(ACC)
            of_row = there[:, None] & inside[None, :]
            extremum = tl.load(
                extremum_ptr + row[:, None] * EXTREMUM_STRIDE + column[None, :], mask=of_row, other=0
            ).to(ACC)[:, None, :]
            share = tl.load(share_ptr + row[:, None] * WIDTH + column[None, :], mask=of_row, other=0)[
                :, None, :
            ]
            if ADDS:
                message = value + weight
                part = tl.broadcast_to(share, [ROWS, EDGES, FEATURES])
            else:
                message = value * weight
                part = share * value
            if ROUNDS:
                message = message.to(x_ptr.dtype.element_ty).to(ACC)
            total += tl.where(tile, (message == extremum).to(ACC) * part, 0)
        tl.store(out_ptr + number, tl.sum(total, axis=2), mask=live)


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
        plan: How to go over them.
        x: [cols, F].
        weight: [E] in the caller's edge order, of the accumulator's dtype.
        largest: Max; else min.
        widen: Return the accumulator's dtype in place of x's, and do not round messages to that of x.
        with_ties: Count the edges that reach it.
        adds: Messages are weight + x in place of weight * x.

    Returns:
        [rows, F], and, if asked for, acc [rows, F]: how many edges reach it, 0 where it is NaN.
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

    def launch(
        bucket: Bucket, items: tuple[Tensor | None, ...], x: Tensor, counts: Tensor | None, rounds: bool
    ) -> None:
        tile = features(plan, width)
        extremum_kernel[(bucket.programs, -(-width // tile))](
            *items,
            x,
            weight if counts is None else None,
            counts,
            out,
            ties,
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
            launch(bucket, (work.row, work.begin, work.end, work.slot, work.col, work.perm), x, None, rounds)
        if partial[0] is not None:
            slots = (work.split_row, work.split_begin, work.split_begin[1:], None, None, None)
            launch(fix_up(work, plan), slots, partial[0], partial[1], False)
    return out, ties


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
        work: Of the transposed graph.
        plan: How to go over it.
        x: [num_src, F].
        weight: [E] in the caller's edge order, of the accumulator's dtype.
        extremum: [num_dst, F], the result.
        share: acc [num_dst, F], contiguous: the gradient divided among the ties.
        adds: Whether the weight was added, in place of multiplied.

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
                *(work.row, work.begin, work.end, work.slot, work.col, work.perm),
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
                *(work.row, work.begin, work.end, work.col, work.perm),
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
