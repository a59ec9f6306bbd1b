"""Attention by dot products on tensor cores, over windows: scores, softmax and sum in one pass."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_forward import usable
from onehop.kernels.triton.blocks_parts import (
    added,
    dots,
    head_rows,
    kept_edges,
    not_numbers,
    window_columns,
    window_rows,
)


@triton.jit
def block_attention(
    source,
    members,
    first_edge,
    perm,
    own,
    key,
    value,
    begin,
    end,
    head,
    base,
    threshold,
    factor,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Attends over some columns of a window: maxima, sums of exponentials, weighted values [16, BLOCK_V]."""
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    largest = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    rows = tl.zeros([16, BLOCK_V], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=STAGES):
        place, inside, row, word, present = window_columns(source, members, at, end, COLUMNS)
        keys = head_rows(key, row, inside, head, column, H, D)
        values = head_rows(value, row, inside, head, value_column, H, V)
        score = tl.where(present, dots(own, keys, COLUMNS) * factor, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        less = usable(higher)
        power = tl.exp(score - less[:, None])
        rescale = tl.exp(largest - less)
        total = total * rescale + tl.sum(power, 1)
        if DROPOUT:
            power *= kept_edges(first_edge, perm, place, inside, word, present, head, base, threshold, H)
        rows = added(rows * rescale[:, None], power, present, values, COLUMNS)
        largest = higher
    return largest, total, rows


@triton.jit(do_not_specialize=["rows", "base", "threshold"])
def block_attend_kernel(
    item_window,
    item_begin,
    item_end,
    item_piece,
    row_slot,
    source,
    members,
    first_edge,
    perm,
    query,
    key,
    value,
    out,
    softmax,
    slot_softmax,
    slot_rows,
    rows,
    base,
    threshold,
    factor,
    kept,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes one item and head per program, COLUMNS of its columns at a time."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, filled = window_rows(item_window, item_piece, row_slot, item, rows, SPLIT)
    begin, end = tl.load(item_begin + item), tl.load(item_end + item)
    own = head_rows(query, row, there, head, tl.arange(0, BLOCK_D), H, D)
    largest, total, sums = block_attention(
        source,
        members,
        first_edge,
        perm,
        own,
        key,
        value,
        begin,
        end,
        head,
        base,
        threshold,
        factor,
        H,
        D,
        V,
        DROPOUT,
        COLUMNS,
        BLOCK_D,
        BLOCK_V,
        STAGES,
    )
    if not_numbers(sums):
        largest, total, sums = block_attention(
            source,
            members,
            first_edge,
            perm,
            own,
            key,
            value,
            begin,
            end,
            head,
            base,
            threshold,
            factor,
            H,
            D,
            V,
            DROPOUT,
            1,
            BLOCK_D,
            BLOCK_V,
            STAGES,
        )
    if DROPOUT:
        sums *= kept
    inverse = tl.where(filled, 1.0 / tl.where(filled, total, 1.0), 0.0)
    place = softmax + row * (2 * H) + head
    tl.store(place, usable(largest), mask=whole)
    tl.store(place + H, inverse, mask=whole)
    column = tl.arange(0, BLOCK_V)
    within = (head * V + column)[None, :]
    inside = (column < V)[None, :]
    tl.store(out + row[:, None] * (H * V) + within, sums * inverse[:, None], mask=whole[:, None] & inside)
    if SPLIT:
        place = slot_softmax + slot * (2 * H) + head
        tl.store(place, largest, mask=part)
        tl.store(place + H, total, mask=part)
        tl.store(slot_rows + slot[:, None] * (H * V) + within, sums, mask=part[:, None] & inside)
