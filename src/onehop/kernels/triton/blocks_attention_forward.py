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
    windows,
    given,
    own,
    begin,
    end,
    head,
    numbers,
    COLUMNS: tl.constexpr,
    FORM: tl.constexpr,
):
    """Attends over some columns of a window: maxima, sums of exponentials, weighted values [16, BLOCK_V]."""
    base, threshold, factor, _ = numbers
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    largest = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    rows = tl.zeros([16, FORM.BLOCK_V], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=FORM.STAGES):
        place, inside, row, word, present = window_columns(windows, at, end, COLUMNS)
        keys = head_rows(given.key, row, inside, head, column, FORM.H, FORM.D)
        values = head_rows(given.value, row, inside, head, value_column, FORM.H, FORM.V)
        score = tl.where(present, dots(own, keys, COLUMNS) * factor, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        less = usable(higher)
        power = tl.exp(score - less[:, None])
        rescale = tl.exp(largest - less)
        total = total * rescale + tl.sum(power, 1)
        if FORM.DROPOUT:
            power *= kept_edges(windows, place, inside, word, present, head, base, threshold, FORM.H)
        rows = added(rows * rescale[:, None], power, present, values, COLUMNS)
        largest = higher
    return largest, total, rows


@triton.jit(do_not_specialize=["rows", "base", "threshold"])
def block_attend_kernel(
    windows,
    given,
    out,
    softmax,
    slot_softmax,
    slot_rows,
    rows,
    base,
    threshold,
    factor,
    kept,
    FORM: tl.constexpr,
):
    """Processes one item and head per program, COLUMNS of its columns at a time."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, filled = window_rows(windows, item, rows, FORM.SPLIT)
    begin, end = tl.load(windows.begin + item), tl.load(windows.end + item)
    own = head_rows(given.query, row, there, head, tl.arange(0, FORM.BLOCK_D), FORM.H, FORM.D)
    numbers = (base, threshold, factor, kept)
    largest, total, sums = block_attention(windows, given, own, begin, end, head, numbers, FORM.COLUMNS, FORM)
    if not_numbers(sums):
        largest, total, sums = block_attention(windows, given, own, begin, end, head, numbers, 1, FORM)
    if FORM.DROPOUT:
        sums *= kept
    inverse = tl.where(filled, 1.0 / tl.where(filled, total, 1.0), 0.0)
    place = softmax + row * (2 * FORM.H) + head
    tl.store(place, usable(largest), mask=whole)
    tl.store(place + FORM.H, inverse, mask=whole)
    column = tl.arange(0, FORM.BLOCK_V)
    within = (head * FORM.V + column)[None, :]
    inside = (column < FORM.V)[None, :]
    tl.store(
        out + row[:, None] * (FORM.H * FORM.V) + within, sums * inverse[:, None], mask=whole[:, None] & inside
    )
    if FORM.SPLIT:
        place = slot_softmax + slot * (2 * FORM.H) + head
        tl.store(place, largest, mask=part)
        tl.store(place + FORM.H, total, mask=part)
        tl.store(slot_rows + slot[:, None] * (FORM.H * FORM.V) + within, sums, mask=part[:, None] & inside)
