"""Attention over each row's edges: scores, softmax and weighted sum in one pass; the fix-up of cut rows."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    GATV2,
    NO_MASK,
    attention_vector,
    caller_numbers,
    multipliers,
    number_of_two,
    own_rows,
    pieces,
    scored_edges,
)


@triton.jit
def usable(largest):
    """What to take off scores before the exponential; a row of nothing but -inf keeps its -inf."""
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_kernel(
    item_row,
    item_begin,
    item_end,
    item_slot,
    col,
    perm,
    value,
    key,
    query,
    att,
    edge,
    edge_weight,
    mask,
    out,
    softmax,
    slot_softmax,
    slot_rows,
    first,
    count,
    base,
    threshold,
    factor_high,
    factor_low,
    kept_high,
    kept_low,
    RULE: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    K: tl.constexpr,
    EDGE: tl.constexpr,
    MASK: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes ROWS items, EDGES edges of each at a time, for HEADS heads.

    Every one of the EDGES lanes keeps a softmax of its own, so that nothing crosses lanes inside the loop;
    they are put together at the end. Items of cut rows leave largest scores, sums and rows in their slots.
    """
    ACC: tl.constexpr = tl.float64 if value.dtype.element_ty == tl.float64 else tl.float32
    row, begin, end, slot, real = pieces(
        item_row, item_begin, item_end, item_slot, tl.program_id(0), first, count, ROWS, SPLIT
    )
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    lane = tl.arange(0, EDGES)
    factor, kept = number_of_two(factor_high, factor_low, ACC), number_of_two(kept_high, kept_low, ACC)
    heads_there = (head < H)[None, None, :]

    own = own_rows(query, row, real, head, column, RULE, H, D, ACC)
    vector = own
    if RULE == GATV2:
        vector = attention_vector(att, head, column, H, D)

    largest = tl.full([ROWS, EDGES, HEADS], float("-inf"), ACC)
    total = tl.zeros([ROWS, EDGES, HEADS], ACC)
    rows = tl.zeros([ROWS, EDGES, HEADS, BLOCK_V], ACC)
    longest = tl.max(end - begin, 0).to(tl.int32)
    for done in tl.range(0, longest, EDGES, num_stages=STAGES):
        at = begin[:, None] + (done + lane)[None, :]
        inside = at < end[:, None]
        source = tl.load(col + at, mask=inside, other=0).to(tl.int64)
        number = caller_numbers(perm, at, inside)
        values, _, _, score = scored_edges(
            value,
            key,
            edge,
            edge_weight,
            source,
            number,
            inside,
            own,
            vector,
            factor,
            head,
            column,
            value_column,
            RULE,
            H,
            D,
            V,
            K,
            EDGE,
            ACC,
        )
        score = tl.where(inside[:, :, None] & heads_there, score, float("-inf"))
        higher = tl.maximum(largest, score)
        less = usable(higher)
        power = tl.exp(score - less)
        rescale = tl.exp(largest - less)
        total = total * rescale + power
        if MASK != NO_MASK:
            power *= multipliers(mask, number, inside, head, base, threshold, kept, H, MASK, ACC)
        rows = rows * rescale[:, :, :, None] + power[:, :, :, None] * values
        largest = higher

    highest = tl.max(largest, 1)
    less = usable(highest)
    share = tl.exp(largest - less[:, None, :])
    total_of_row = tl.sum(total * share, 1)
    row_sum = tl.sum(rows * share[:, :, :, None], 1)

    there = (head < H)[None, :]
    whole = (real & (slot < 0))[:, None]
    # Of a row without edges, and of heads that are not there.
    nothing = (begin == end)[:, None] | (head >= H)[None, :]
    inverse = tl.where(nothing, 0.0, 1.0 / tl.where(nothing, 1.0, total_of_row))
    place = softmax + row[:, None] * (2 * H) + head[None, :]
    tl.store(place, less, mask=whole & there)
    tl.store(place + H, inverse, mask=whole & there)

    within = head[None, :, None] * V + value_column[None, None, :]
    there_too = (head < H)[None, :, None] & (value_column < V)[None, None, :]
    result = row_sum * inverse[:, :, None]
    tl.store(out + row[:, None, None] * (H * V) + within, result, mask=whole[:, :, None] & there_too)
    if SPLIT:
        part = (real & (slot >= 0))[:, None]
        place = slot_softmax + slot[:, None] * (2 * H) + head[None, :]
        tl.store(place, highest, mask=part & there)
        tl.store(place + H, total_of_row, mask=part & there)
        place = slot_rows + slot[:, None, None] * (H * V) + within
        tl.store(place, row_sum, mask=part[:, :, None] & there_too)


@triton.jit
def merge_kernel(
    cut_row,
    cut_begin,
    slot_softmax,
    slot_rows,
    out,
    softmax,
    H: tl.constexpr,
    V: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """A program puts one cut row together, for HEADS heads, slot after slot."""
    ACC: tl.constexpr = slot_rows.dtype.element_ty
    cut = tl.program_id(0)
    row = tl.load(cut_row + cut).to(tl.int64)
    first = tl.load(cut_begin + cut).to(tl.int64)
    end = tl.load(cut_begin + cut + 1).to(tl.int64)
    head, column = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, BLOCK_V)
    heads_there = head < H
    there = heads_there[:, None] & (column < V)[None, :]
    within = head[:, None] * V + column[None, :]

    largest = tl.full([HEADS], float("-inf"), ACC)
    total = tl.zeros([HEADS], ACC)
    rows = tl.zeros([HEADS, BLOCK_V], ACC)
    for slot in range(first, end):
        place = slot_softmax + slot * (2 * H) + head
        part_largest = tl.load(place, mask=heads_there, other=float("-inf"))
        higher = tl.maximum(largest, part_largest)
        less = usable(higher)
        rescale, share = tl.exp(largest - less), tl.exp(part_largest - less)
        total = total * rescale + tl.load(place + H, mask=heads_there, other=0.0) * share
        part = tl.load(slot_rows + slot * (H * V) + within, mask=there, other=0.0)
        rows = rows * rescale[:, None] + part * share[:, None]
        largest = higher
    inverse = 1.0 / tl.where(heads_there, total, 1.0)
    place = softmax + row * (2 * H) + head
    tl.store(place, usable(largest), mask=heads_there)
    tl.store(place + H, inverse, mask=heads_there)
    tl.store(out + row * (H * V) + within, rows * inverse[:, None], mask=there)
