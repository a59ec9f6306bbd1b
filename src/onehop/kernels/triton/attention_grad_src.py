"""Gradients of attention to sources: a sweep over the edges of every source."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    GAT,
    GATV2,
    feature_rows,
    head_numbers,
    store_sums,
)
from onehop.kernels.triton.attention_scores import (
    of_destinations,
    of_sources,
    score_settings,
    scored,
    through_leaky,
    weights_and_slopes,
)
from onehop.kernels.triton.item_tiles import caller_numbers, ends_ahead, item_places, next_edges, tile_items


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_grad_src_kernel(
    items,
    given,
    grad,
    grad_weights,
    statistics,
    grad_value,
    grad_key,
    slot_values,
    slot_keys,
    first,
    count,
    base,
    threshold,
    factor,
    kept,
    FORM: tl.constexpr,
    WEIGHTS: tl.constexpr,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
):
    """Processes ROWS items of sources per program; gathers destinations' rows and statistics."""
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row, slot = item_places(items, item, real)
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    own_values, own_keys = of_sources(given, row[:, None], real[:, None], head, column, value_column, FORM)
    settings = score_settings(given, factor, head, column, FORM)

    value_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_V], 0.0, FORM.ACC)
    if FORM.RULE == GAT:
        key_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS], 0.0, FORM.ACC)
    else:
        key_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_D], 0.0, FORM.ACC)
    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, inside = next_edges(begin, end, done, FORM.EDGES)
        target = ahead.to(tl.int64)
        ahead = ends_ahead(items, begin, end, done + FORM.EDGES, FORM.EDGES)
        number = caller_numbers(items, at, inside)
        normaliser = head_numbers(statistics, 2 * target, inside, head, FORM.H, FORM.ACC)
        product = head_numbers(statistics, 2 * target + 1, inside, head, FORM.H, FORM.ACC)
        grads = feature_rows(grad, target, inside, head, value_column, FORM.H, FORM.V, FORM.ACC)
        queries = of_destinations(given, target, inside, head, column, FORM)
        values, _, raw, score = scored(
            given, own_values, own_keys, queries, settings, number, inside, head, column, FORM
        )
        weight, slope = weights_and_slopes(
            given,
            grad_weights,
            score,
            normaliser,
            product,
            values,
            grads,
            number,
            inside,
            head,
            (base, threshold, kept),
            FORM,
            WEIGHTS,
        )
        if FOR_VALUE:
            value_sum += weight[:, :, :, None] * grads
            if FORM.RULE == GATV2:
                value_sum += slope[:, :, :, None] * through_leaky(settings[0], raw, settings[1])
        if FOR_KEY:
            if FORM.RULE == GAT:
                key_sum += through_leaky(slope, raw, settings[1])
            elif FORM.RULE == DOT:
                key_sum += (slope * settings[1])[:, :, :, None] * queries

    if FOR_VALUE:
        store_sums(value_sum, grad_value, slot_values, row, slot, real, head, value_column, FORM.V, FORM)
    if FOR_KEY:
        store_sums(key_sum, grad_key, slot_keys, row, slot, real, head, column, FORM.D, FORM)
