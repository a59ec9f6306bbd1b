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
    target,
    members,
    first_edge,
    perm,
    own_key,
    own_value,
    query,
    grad,
    statistics,
    begin,
    end,
    head,
    base,
    threshold,
    factor,
    kept,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums over some columns of a window, which are destinations here: [16, BLOCK_V] and [16, BLOCK_D]."""
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    for_value = tl.zeros([16, BLOCK_V], tl.float32)
    for_key = tl.zeros([16, BLOCK_D], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=STAGES):
        place, inside, row, word, present = window_columns(target, members, at, end, COLUMNS)
        queries = head_rows(query, row, inside, head, column, H, D)
        grads = head_rows(grad, row, inside, head, value_column, H, V)
        statistic = statistics + row * (2 * H) + head
        normaliser = tl.load(statistic, mask=inside, other=0.0)
        score = dots(own_key, queries, COLUMNS) * factor
        weight = tl.exp(tl.where(present, score - normaliser[None, :], float("-inf")))
        kept_weight = weight
        if DROPOUT:
            drawn = kept_edges(first_edge, perm, place, inside, word, present, head, base, threshold, H)
            kept_weight = weight * drawn
        if FOR_VALUE:
            for_value = added(for_value, kept_weight, present, grads, COLUMNS)
        if FOR_KEY:
            slope = dots(own_value, grads, COLUMNS)
            if DROPOUT:
                slope *= kept * drawn
            product = tl.load(statistic + H, mask=inside, other=0.0)
            slope = tl.where(present, weight * (slope - product[None, :]), 0.0)
            for_key = added(for_key, slope, present, queries, COLUMNS)
    if DROPOUT:
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
    item_window,
    item_begin,
    item_end,
    item_piece,
    row_slot,
    target,
    members,
    first_edge,
    perm,
    query,
    key,
    value,
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
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes one item and head per program; gathers destinations' queries, gradients and statistics."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, _filled = window_rows(item_window, item_piece, row_slot, item, rows, SPLIT)
    begin, end = tl.load(item_begin + item), tl.load(item_end + item)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    own_key = head_rows(key, row, there, head, column, H, D)
    own_value = head_rows(value, row, there, head, value_column, H, V)
    for_value, for_key = block_source_grads(
        target,
        members,
        first_edge,
        perm,
        own_key,
        own_value,
        query,
        grad,
        statistics,
        begin,
        end,
        head,
        base,
        threshold,
        factor,
        kept,
        H,
        D,
        V,
        DROPOUT,
        FOR_VALUE,
        FOR_KEY,
        COLUMNS,
        BLOCK_D,
        BLOCK_V,
        STAGES,
    )
    if not_numbers(for_value) | not_numbers(for_key):
        for_value, for_key = block_source_grads(
            target,
            members,
            first_edge,
            perm,
            own_key,
            own_value,
            query,
            grad,
            statistics,
            begin,
            end,
            head,
            base,
            threshold,
            factor,
            kept,
            H,
            D,
            V,
            DROPOUT,
            FOR_VALUE,
            FOR_KEY,
            1,
            BLOCK_D,
            BLOCK_V,
            STAGES,
        )
    if FOR_VALUE:
        store_rows(grad_value, slot_values, for_value, row, slot, whole, part, head, value_column, H, V)
    if FOR_KEY:
        store_rows(grad_key, slot_keys, for_key, row, slot, whole, part, head, column, H, D)
