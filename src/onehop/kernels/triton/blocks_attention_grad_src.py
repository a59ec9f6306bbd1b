"""The gradient of attention to keys and values on tensor cores: a sweep over the windows of sources."""

import triton
import triton.language as tl

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
def block_source_grads(
    windows,
    given,
    own,
    begin,
    end,
    head,
    numbers,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
    COLUMNS: tl.constexpr,
    FORM: tl.constexpr,
):
    """Sums over some columns of a window, which are destinations here: [16, BLOCK_V] and [16, BLOCK_D]."""
    own_key, own_value, grad, statistics = own
    base, threshold, factor, kept = numbers
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    for_value = tl.zeros([16, FORM.BLOCK_V], tl.float32)
    for_key = tl.zeros([16, FORM.BLOCK_D], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=FORM.STAGES):
        place, inside, row, word, present = window_columns(windows, at, end, COLUMNS)
        queries = head_rows(given.query, row, inside, head, column, FORM.H, FORM.D)
        grads = head_rows(grad, row, inside, head, value_column, FORM.H, FORM.V)
        statistic = statistics + row * (2 * FORM.H) + head
        normaliser = tl.load(statistic, mask=inside, other=0.0)
        score = dots(own_key, queries, COLUMNS) * factor
        weight = tl.exp(tl.where(present, score - normaliser[None, :], float("-inf")))
        kept_weight = weight
        if FORM.DROPOUT:
            drawn = kept_edges(windows, place, inside, word, present, head, base, threshold, FORM.H)
            kept_weight = weight * drawn
        if FOR_VALUE:
            for_value = added(for_value, kept_weight, present, grads, COLUMNS)
        if FOR_KEY:
            slope = dots(own_value, grads, COLUMNS)
            if FORM.DROPOUT:
                slope *= kept * drawn
            product = tl.load(statistic + FORM.H, mask=inside, other=0.0)
            slope = tl.where(present, weight * (slope - product[None, :]), 0.0)
            for_key = added(for_key, slope, present, queries, COLUMNS)
    if FORM.DROPOUT:
        for_value *= kept
    return for_value, for_key * factor


@triton.jit
def store_rows(x, slots, total, row, slot, whole, part, head, column, H: tl.constexpr, D: tl.constexpr):
    """Stores rows of one head to the result, [rows, H, D], or to their slots."""
    within = (head * D + column)[None, :]
    inside = (column < D)[None, :]
    tl.store(x + row[:, None] * (H * D) + within, total, mask=whole[:, None] & inside)
    if slots is not None:
        tl.store(slots + slot[:, None] * (H * D) + within, total, mask=part[:, None] & inside)


@triton.jit(do_not_specialize=["rows", "base", "threshold"])
def block_grad_src_kernel(
    windows,
    given,
    grad,
    statistics,
    grad_value,
    grad_key,
    slot_values,
    slot_keys,
    rows,
    base,
    threshold,
    factor,
    kept,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
    FORM: tl.constexpr,
):
    """Processes one item and head per program; gathers destinations' queries, gradients and statistics."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, _filled = window_rows(windows, item, rows, FORM.SPLIT)
    begin, end = tl.load(windows.begin + item), tl.load(windows.end + item)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    own_key = head_rows(given.key, row, there, head, column, FORM.H, FORM.D)
    own_value = head_rows(given.value, row, there, head, value_column, FORM.H, FORM.V)
    own, numbers = (own_key, own_value, grad, statistics), (base, threshold, factor, kept)
    for_value, for_key = block_source_grads(
        windows, given, own, begin, end, head, numbers, FOR_VALUE, FOR_KEY, FORM.COLUMNS, FORM
    )
    if not_numbers(for_value) | not_numbers(for_key):
        for_value, for_key = block_source_grads(
            windows, given, own, begin, end, head, numbers, FOR_VALUE, FOR_KEY, 1, FORM
        )
    if FOR_VALUE:
        store_rows(
            grad_value, slot_values, for_value, row, slot, whole, part, head, value_column, FORM.H, FORM.V
        )
    if FOR_KEY:
        store_rows(grad_key, slot_keys, for_key, row, slot, whole, part, head, column, FORM.H, FORM.D)
