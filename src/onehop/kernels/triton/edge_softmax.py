"""Softmax over every row's edges on the GPU, and its gradient."""

from dataclasses import replace
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import EdgeSoftmax, EdgeSoftmaxGrad, accumulator
from onehop.kernels.triton.attention_forward import usable
from onehop.kernels.triton.attention_parts import head_numbers
from onehop.kernels.triton.item_tiles import caller_numbers, item_slots, next_edges, tile_items
from onehop.kernels.triton.launch import bounded, buckets, features, items_of, launch, on_device_of
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count"])
def edge_softmax_kernel(
    items,
    scores,
    out,
    slots,
    first,
    count,
    H: tl.constexpr,
    FINISH: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Computes the largest score and the sum of exponentials of ROWS items, then their softmax.

    Pieces of split rows store the two numbers in their slots, [slots, 2, H]. With FINISH, only the results of
    such pieces are written; the slots then have the whole row's values.
    """
    ACC: tl.constexpr = tl.float64 if scores.dtype.element_ty == tl.float64 else tl.float32
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    slot = item_slots(items, item, real)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    there = (head < H)[None, :]
    if FINISH:
        in_slot = (real & (slot >= 0))[:, None] & there
        place = slots + slot[:, None] * (2 * H) + head[None, :]
        end = tl.where(slot >= 0, end, begin)
        less = tl.load(place, mask=in_slot, other=0.0)
        total = tl.load(place + H, mask=in_slot, other=1.0)
    else:
        largest = tl.full([ROWS, EDGES, HEADS], float("-inf"), ACC)
        totals = tl.zeros([ROWS, EDGES, HEADS], ACC)
        for done in range(0, longest, EDGES):
            at, inside = next_edges(begin, end, done, EDGES)
            score = head_numbers(scores, caller_numbers(items, at, inside), inside, head, H, ACC)
            score = tl.where(inside[:, :, None] & there[:, None, :], score, float("-inf"))
            higher = tl.maximum(largest, score)
            totals = totals * tl.exp(largest - usable(higher)) + tl.exp(score - usable(higher))
            largest = higher
        highest = tl.max(largest, 1)
        less = usable(highest)
        total = tl.sum(totals * tl.exp(largest - less[:, None, :]), 1)
        if slots is not None:
            in_slot = (real & (slot >= 0))[:, None] & there
            place = slots + slot[:, None] * (2 * H) + head[None, :]
            tl.store(place, highest, mask=in_slot)
            tl.store(place + H, total, mask=in_slot)
            end = tl.where(slot >= 0, begin, end)
    inverse = 1.0 / tl.where((begin == end)[:, None] | (head >= H)[None, :], 1.0, total)
    for done in range(0, tl.max(end - begin, 0), EDGES):
        at, inside = next_edges(begin, end, done, EDGES)
        number = caller_numbers(items, at, inside)
        score = head_numbers(scores, number, inside, head, H, ACC)
        valid = inside[:, :, None] & there[:, None, :]
        share = tl.exp(tl.where(valid, score - less[:, None, :], 0.0)) * inverse[:, None, :]
        out_place = out + number[:, :, None] * H + head[None, None, :]
        tl.store(out_place, share, mask=valid)


@triton.jit
def merge_softmax_kernel(cut_begin, slots, H: tl.constexpr, LANES: tl.constexpr, HEADS: tl.constexpr):
    """Writes a split row's largest score and sum of exponentials into its slots, LANES at a time."""
    ACC: tl.constexpr = slots.dtype.element_ty
    first = tl.load(cut_begin + tl.program_id(0)).to(tl.int64)
    end = tl.load(cut_begin + tl.program_id(0) + 1).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    largest = tl.full([LANES, HEADS], float("-inf"), ACC)
    totals = tl.zeros([LANES, HEADS], ACC)
    for done in range(first, end, LANES):
        slot = done + tl.arange(0, LANES)
        there = (slot < end)[:, None] & (head < H)[None, :]
        place = slots + slot[:, None] * (2 * H) + head[None, :]
        part = tl.load(place, mask=there, other=float("-inf"))
        higher = tl.maximum(largest, part)
        less = usable(higher)
        more = tl.load(place + H, mask=there, other=0.0) * tl.exp(part - less)
        totals = totals * tl.exp(largest - less) + more
        largest = higher
    less = usable(tl.max(largest, 0))
    total = tl.sum(totals * tl.exp(largest - less[None, :]), 0)
    for done in range(first, end, LANES):
        slot = done + tl.arange(0, LANES)
        there = (slot < end)[:, None] & (head < H)[None, :]
        place = slots + slot[:, None] * (2 * H) + head[None, :]
        tl.store(place, tl.broadcast_to(less[None, :], [LANES, HEADS]), mask=there)
        tl.store(place + H, tl.broadcast_to(total[None, :], [LANES, HEADS]), mask=there)


@triton.jit(do_not_specialize=["first", "count"])
def edge_softmax_grad_kernel(
    items,
    softmax,
    grad,
    out,
    slots,
    first,
    count,
    H: tl.constexpr,
    FINISH: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Computes the row's sum s of softmax times gradient, then softmax times (gradient - s).

    The slots, [slots, H], are used as in :func:`edge_softmax_kernel`.
    """
    ACC: tl.constexpr = tl.float64 if softmax.dtype.element_ty == tl.float64 else tl.float32
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    slot = item_slots(items, item, real)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    there = (head < H)[None, :]
    if FINISH:
        in_slot = (real & (slot >= 0))[:, None] & there
        end = tl.where(slot >= 0, end, begin)
        total = tl.load(slots + slot[:, None] * H + head[None, :], mask=in_slot, other=0.0)
    else:
        totals = tl.zeros([ROWS, EDGES, HEADS], ACC)
        for done in range(0, longest, EDGES):
            at, inside = next_edges(begin, end, done, EDGES)
            number = caller_numbers(items, at, inside)
            share = head_numbers(softmax, number, inside, head, H, ACC)
            totals += share * head_numbers(grad, number, inside, head, H, ACC)
        total = tl.sum(totals, 1)
        if slots is not None:
            in_slot = (real & (slot >= 0))[:, None] & there
            tl.store(slots + slot[:, None] * H + head[None, :], total, mask=in_slot)
            end = tl.where(slot >= 0, begin, end)
    for done in range(0, tl.max(end - begin, 0), EDGES):
        at, inside = next_edges(begin, end, done, EDGES)
        number = caller_numbers(items, at, inside)
        share = head_numbers(softmax, number, inside, head, H, ACC)
        result = share * (head_numbers(grad, number, inside, head, H, ACC) - total[:, None, :])
        out_place = out + number[:, :, None] * H + head[None, None, :]
        tl.store(out_place, result, mask=inside[:, :, None] & there[:, None, :])


@triton.jit
def merge_sums_kernel(cut_begin, slots, H: tl.constexpr, LANES: tl.constexpr, HEADS: tl.constexpr):
    """Writes a split row's sum into its slots, LANES at a time."""
    first = tl.load(cut_begin + tl.program_id(0)).to(tl.int64)
    end = tl.load(cut_begin + tl.program_id(0) + 1).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    totals = tl.zeros([LANES, HEADS], slots.dtype.element_ty)
    for done in range(first, end, LANES):
        slot = done + tl.arange(0, LANES)
        there = (slot < end)[:, None] & (head < H)[None, :]
        totals += tl.load(slots + slot[:, None] * H + head[None, :], mask=there, other=0.0)
    total = tl.sum(totals, 0)
    for done in range(first, end, LANES):
        slot = done + tl.arange(0, LANES)
        there = (slot < end)[:, None] & (head < H)[None, :]
        place = slots + slot[:, None] * H + head[None, :]
        tl.store(place, tl.broadcast_to(total[None, :], [LANES, HEADS]), mask=there)


# For programs that merge, of which there are few: the number of warps, and of numbers read at a time.
_MERGING_WARPS = 8
_MERGED_NUMBERS = 1024


def edge_softmax(work: Work, plan: TritonPlan, call: EdgeSoftmax) -> Tensor:
    """Return the result of a call, [E, H]; ``work`` is on the device of the scores."""
    operands = (call.scores.contiguous(),)
    return _two_passes(work, plan, edge_softmax_kernel, merge_softmax_kernel, operands, 2)


def edge_softmax_grad(work: Work, plan: TritonPlan, call: EdgeSoftmaxGrad) -> Tensor:
    """Return the result of a call, [E, H]."""
    operands = (call.softmax.contiguous(), call.grad.contiguous())
    return _two_passes(work, plan, edge_softmax_grad_kernel, merge_sums_kernel, operands, 1)


def _two_passes(
    work: Work, plan: TritonPlan, kernel: Any, merge: Any, operands: tuple[Tensor, ...], numbers: int
) -> Tensor:
    """Runs whole rows in one launch, and split rows in two, with a merge of ``numbers`` in between."""
    first = operands[0]
    out, heads = first.new_empty(first.shape), first.size(1)
    if out.numel() == 0:
        return out
    block = features(plan, heads)
    tiles = -(-heads // block)
    shape = (work.slots, numbers, heads)
    slots = first.new_empty(shape, dtype=accumulator(first.dtype)) if work.slots else None

    def run(finish: bool) -> None:
        settings = {"H": heads, "FINISH": finish, "HEADS": block, **bounded(plan)}
        for bucket in buckets(work, plan):
            launch(kernel, bucket, items_of(work), (*operands, out, slots), tiles, **settings)

    run(finish=False)
    if slots is not None:
        with on_device_of(first):
            merge[(work.split_row.numel(), tiles)](
                work.split_begin,
                slots,
                H=heads,
                LANES=max(_MERGED_NUMBERS // block, 1),
                HEADS=block,
                **bounded(replace(plan, num_warps=_MERGING_WARPS)),
            )
        run(finish=True)
    return out
