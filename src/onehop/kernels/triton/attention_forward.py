"""Attention over each row's edges: scores, softmax and weighted sum in one pass; the merge of split rows."""

from collections.abc import Sequence
from dataclasses import replace

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.attention_parts import (
    NO_MASK,
    store_features,
    store_head_numbers,
)
from onehop.kernels.triton.attention_scores import (
    masked,
    of_destinations,
    of_sources,
    score_settings,
    scored,
)
from onehop.kernels.triton.item_tiles import ends_ahead, item_places, step_ahead, tile_items
from onehop.kernels.triton.launch import bounded, items_of, on_device_of
from onehop.kernels.triton.merges import Merge
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two


@triton.jit
def usable(largest):
    """Return the shift of scores before the exponential; 0 if all scores are -inf, which then stay -inf."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_kernel(
    items,
    operands,
    out,
    softmax,
    slot_softmax,
    slot_rows,
    first,
    count,
    base,
    threshold,
    factor,
    kept_factor,
    FORM: tl.constexpr,
):
    """Processes ROWS items per program, EDGES edges of each at a time, for HEADS heads.

    Each of the EDGES lanes has its own online softmax, so that the loop has no operation across lanes; the
    lanes are merged at the end. Items of split rows store largest scores, sums and rows in their slots.
    """
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row, slot = item_places(items, item, real)
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    queries = of_destinations(operands, row[:, None], real[:, None], head, column, FORM)
    settings = score_settings(operands, factor, head, column, FORM)

    largest = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS], float("-inf"), FORM.ACC)
    total = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS], 0.0, FORM.ACC)
    rows = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_V], 0.0, FORM.ACC)
    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        inside, source, number, ahead = step_ahead(items, ahead, begin, end, done, FORM.EDGES)
        values, keys = of_sources(operands, source, inside, head, column, value_column, FORM)
        values, keys, _, score = scored(
            operands, values, keys, queries, settings, number, inside, head, column, FORM
        )
        score = tl.where(inside[:, :, None] & (head < FORM.H)[None, None, :], score, float("-inf"))
        higher = tl.maximum(largest, score)
        less = usable(higher)
        power = tl.exp(score - less)
        rescale = tl.exp(largest - less)
        total = total * rescale + power
        if FORM.MASK != NO_MASK:
            power *= masked(operands, number, inside, head, (base, threshold, kept_factor), FORM)
        rows = rows * rescale[:, :, :, None] + power[:, :, :, None] * values
        largest = higher

    highest = tl.max(largest, 1)
    less = usable(highest)
    share = tl.exp(largest - less[:, None, :])
    total_of_row = tl.sum(total * share, 1)
    row_sum = tl.sum(rows * share[:, :, :, None], 1)

    whole = real & (slot < 0)
    # This is true for rows without edges, and for padding heads.
    nothing = (begin == end)[:, None] | (head >= FORM.H)[None, :]
    inverse = tl.where(nothing, 0.0, 1.0 / tl.where(nothing, 1.0, total_of_row))
    store_head_numbers(softmax, 2 * row, whole, less, head, FORM.H)
    store_head_numbers(softmax, 2 * row + 1, whole, inverse, head, FORM.H)
    store_features(out, row, whole, row_sum * inverse[:, :, None], head, value_column, FORM.H, FORM.V)
    if slot_rows is not None:
        part = real & (slot >= 0)
        store_head_numbers(slot_softmax, 2 * slot, part, highest, head, FORM.H)
        store_head_numbers(slot_softmax, 2 * slot + 1, part, total_of_row, head, FORM.H)
        store_features(slot_rows, slot, part, row_sum, head, value_column, FORM.H, FORM.V)


@triton.jit
def merge_kernel(
    items,
    slot_softmax,
    slot_rows,
    out,
    softmax,
    next_softmax,
    next_rows,
    H: tl.constexpr,
    V: tl.constexpr,
    LANES: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Merges one group of slots per program, for HEADS heads: into its row, or into a slot of the next level.

    LANES slots are read at a time; each lane merges its own slots, and the lanes are merged as a tree at the
    end.
    """
    ACC: tl.constexpr = slot_rows.dtype.element_ty
    group = tl.program_id(0)
    row = tl.load(items.row + group).to(tl.int64)
    first = tl.load(items.begin + group).to(tl.int64)
    end = tl.load(items.end + group).to(tl.int64)
    head, column = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, BLOCK_V)
    heads_there = head < H
    there = heads_there[:, None] & (column < V)[None, :]
    within = head[:, None] * V + column[None, :]

    largest = tl.full([LANES, HEADS], float("-inf"), ACC)
    total = tl.zeros([LANES, HEADS], ACC)
    rows = tl.zeros([LANES, HEADS, BLOCK_V], ACC)
    for done in range(first, end, LANES):
        slot = done + tl.arange(0, LANES)
        inside = slot < end
        place = slot_softmax + slot[:, None] * (2 * H) + head[None, :]
        valid = inside[:, None] & heads_there[None, :]
        part_largest = tl.load(place, mask=valid, other=float("-inf"))
        higher = tl.maximum(largest, part_largest)
        less = usable(higher)
        rescale, share = tl.exp(largest - less), tl.exp(part_largest - less)
        total = total * rescale + tl.load(place + H, mask=valid, other=0.0) * share
        place = slot_rows + slot[:, None, None] * (H * V) + within[None, :, :]
        part = tl.load(place, mask=inside[:, None, None] & there[None, :, :], other=0.0)
        rows = rows * rescale[:, :, None] + part * share[:, :, None]
        largest = higher
    highest = tl.max(largest, 0)
    share = tl.exp(largest - usable(highest)[None, :])
    total_of_row = tl.sum(total * share, 0)
    row_sum = tl.sum(rows * share[:, :, None], 0)
    # A row without edges, which has no slot, may be among these rows.
    inverse = 1.0 / tl.where(heads_there & (first < end), total_of_row, 1.0)
    if next_rows is not None:
        slot = tl.load(items.slot + group).to(tl.int64)
        part = tl.full([HEADS], slot, tl.int64) >= 0
        place = next_softmax + slot * (2 * H) + head
        tl.store(place, highest, mask=heads_there & part)
        tl.store(place + H, total_of_row, mask=heads_there & part)
        tl.store(next_rows + slot * (H * V) + within, row_sum, mask=there & part[:, None])
        heads_there &= ~part
        there &= ~part[:, None]
    place = softmax + row * (2 * H) + head
    tl.store(place, usable(highest), mask=heads_there)
    tl.store(place + H, inverse, mask=heads_there)
    tl.store(out + row * (H * V) + within, row_sum * inverse[:, None], mask=there)


# The bytes of a tile per thread, and the warps of a program that merges, of which there are few.
_BYTES = 64
_WARP = 32
_MOST_LANES = 32
_MERGING_WARPS = 8


def merge(
    merges: Sequence[Merge],
    slots: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    heads_at_a_time: int,
    plan: TritonPlan,
) -> None:
    """Merges the slots of split rows.

    Args:
        merges: The levels of the merge; each is one launch.
        slots: acc [slots, 2, H], largest scores and sums of exponentials; and acc [slots, H, V].
        results: The output [rows, H, V], and acc [rows, 2, H].
        heads_at_a_time: Number of heads of a program, a power of two.
        plan: The plan of the kernel that filled the slots.
    """
    softmax, rows = slots
    heads, width = rows.shape[1:]
    block = power_of_two(width)
    plan = replace(plan, num_warps=_MERGING_WARPS)
    numbers = _BYTES // rows.itemsize * _WARP * _MERGING_WARPS
    lanes = max(numbers // (heads_at_a_time * block), 1)
    for level in merges:
        next_softmax, next_rows = level.next_slots(softmax), level.next_slots(rows)
        with on_device_of(rows):
            merge_kernel[(level.row.numel(), -(-heads // heads_at_a_time))](
                items_of(level),
                *(softmax, rows, *results, next_softmax, next_rows),
                H=heads,
                V=width,
                LANES=min(lanes, _MOST_LANES),
                HEADS=heads_at_a_time,
                BLOCK_V=block,
                **bounded(plan),
            )
        if next_softmax is not None and next_rows is not None:
            softmax, rows = next_softmax, next_rows
