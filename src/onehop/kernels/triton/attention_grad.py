"""Gradients of attention: a sweep over the edges of every row, and one over the edges of every source."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    EDGE_PROJECTED,
    GAT,
    GATV2,
    feature_rows,
    head_numbers,
    store_head_numbers,
    store_sums,
)
from onehop.kernels.triton.attention_scores import (
    leaky,
    of_destinations,
    of_sources,
    score_settings,
    scored,
    through_leaky,
    weights_and_slopes,
)
from onehop.kernels.triton.item_tiles import ends_ahead, item_places, step_ahead, tile_items


@triton.jit
def store_edge_gradients(
    operands,
    rows,
    number,
    inside,
    head,
    column,
    grad_edge,
    weight_parts,
    form: tl.constexpr,
    FOR_EDGE: tl.constexpr,
    FOR_EDGE_WEIGHT: tl.constexpr,
):
    """Stores the gradient of edge features, [rows, edges, heads, columns], unchanged or projected back."""
    within = head[:, None] * form.D + column[None, :]
    there = (head < form.H)[:, None] & (column < form.D)[None, :]
    if form.EDGE == EDGE_PROJECTED:
        for k in range(form.K):
            if FOR_EDGE:
                place = operands.edge_weight + k * (form.H * form.D) + within
                weights = tl.load(place, mask=there, other=0.0)[None, None, :, :]
                feature_grad = tl.sum(tl.sum(rows * weights, 3), 2)
                tl.store(grad_edge + number * form.K + k, feature_grad, mask=inside)
            if FOR_EDGE_WEIGHT:
                feature = tl.load(operands.edge + number * form.K + k, mask=inside, other=0.0).to(form.ACC)
                part = tl.sum(tl.sum(rows * feature[:, :, None, None], 1), 0)
                place = weight_parts + (tl.program_id(0) * form.K + k) * (form.H * form.D) + within
                before = tl.load(place, mask=there, other=0.0)
                tl.store(place, before + part, mask=there)
                # Another thread may read this data in the next iteration.
                tl.debug_barrier()
    elif FOR_EDGE:
        place = grad_edge + number[:, :, None, None] * (form.H * form.D) + within[None, None, :, :]
        tl.store(place, rows, mask=inside[:, :, None, None] & there[None, None, :, :])


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_grad_dst_kernel(
    items,
    operands,
    out,
    softmax,
    grad,
    grad_weights,
    weights_product,
    statistics,
    grad_query,
    slot_rows,
    att_parts,
    grad_edge,
    weight_parts,
    first,
    count,
    base,
    threshold,
    factor,
    kept_factor,
    FORM: tl.constexpr,
    WEIGHTS: tl.constexpr,
    FOR_QUERY: tl.constexpr,
    FOR_ATT: tl.constexpr,
    FOR_EDGE: tl.constexpr,
    FOR_EDGE_WEIGHT: tl.constexpr,
):
    """Processes tiles of ROWS items, one after another; sums over all edges are private to each program.

    The statistics, [rows, 2, H], are for the sweep over sources: the logarithm of the sum of exponentials,
    and the row's sum of weights times their gradients, which equals grad . out. All pieces of a split row
    write the same values.
    """
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    if FOR_ATT:
        att_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_D], 0.0, FORM.ACC)

    for tile in range(tl.program_id(0), tl.cdiv(count, FORM.ROWS), tl.num_programs(0)):
        item, real, begin, end, longest = tile_items(items, tile, first, count, FORM.ROWS)
        row, slot = item_places(items, item, real)
        at_row, there = row[:, None], real[:, None]
        queries = of_destinations(operands, at_row, there, head, column, FORM)
        vector, slope_or_scale = score_settings(operands, factor, head, column, FORM)
        own_grad = feature_rows(grad, at_row, there, head, value_column, FORM.H, FORM.V, FORM.ACC)
        own_out = feature_rows(out, at_row, there, head, value_column, FORM.H, FORM.V, FORM.ACC)
        product = tl.sum(own_grad * own_out, 3)
        if WEIGHTS:
            product += head_numbers(weights_product, at_row, there, head, FORM.H, FORM.ACC)
        less = head_numbers(softmax, 2 * at_row, there, head, FORM.H, FORM.ACC)
        inverse = head_numbers(softmax, 2 * at_row + 1, there, head, FORM.H, FORM.ACC)
        normaliser = less - tl.log(tl.where(inverse == 0, 1.0, inverse))
        store_head_numbers(statistics, 2 * row, real, tl.sum(normaliser, 1), head, FORM.H)
        store_head_numbers(statistics, 2 * row + 1, real, tl.sum(product, 1), head, FORM.H)

        if FORM.RULE == GAT:
            sums = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS], 0.0, FORM.ACC)
        else:
            sums = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_D], 0.0, FORM.ACC)
        ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
        for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
            inside, source, number, ahead = step_ahead(items, ahead, begin, end, done, FORM.EDGES)
            values, keys = of_sources(operands, source, inside, head, column, value_column, FORM)
            values, keys, raw, score = scored(
                operands, values, keys, queries, (vector, slope_or_scale), number, inside, head, column, FORM
            )
            weight, slope = weights_and_slopes(
                operands,
                grad_weights,
                score,
                normaliser,
                product,
                values,
                own_grad,
                number,
                inside,
                head,
                (base, threshold, kept_factor),
                FORM,
                WEIGHTS,
            )
            if FORM.RULE == GAT:
                slope = through_leaky(slope, raw, slope_or_scale)
                sums += slope
                if FOR_EDGE:
                    place = grad_edge + number[:, :, None] * FORM.H + head[None, None, :]
                    tl.store(place, slope, mask=inside[:, :, None] & (head < FORM.H)[None, None, :])
            else:
                if FORM.RULE == GATV2:
                    rows = slope[:, :, :, None] * through_leaky(vector, raw, slope_or_scale)
                    sums += rows
                    if FOR_ATT:
                        att_sum += slope[:, :, :, None] * leaky(raw, slope_or_scale)
                else:
                    slope *= slope_or_scale
                    sums += slope[:, :, :, None] * keys
                    if FOR_EDGE or FOR_EDGE_WEIGHT:
                        rows = slope[:, :, :, None] * queries + weight[:, :, :, None] * own_grad
                if FOR_EDGE or FOR_EDGE_WEIGHT:
                    store_edge_gradients(
                        operands,
                        rows,
                        number,
                        inside,
                        head,
                        column,
                        grad_edge,
                        weight_parts,
                        FORM,
                        FOR_EDGE,
                        FOR_EDGE_WEIGHT,
                    )

        if FOR_QUERY:
            store_sums(sums, grad_query, slot_rows, row, slot, real, head, column, FORM.D, FORM)

    if FOR_ATT:
        within = head[:, None] * FORM.D + column[None, :]
        mask = (head < FORM.H)[:, None] & (column < FORM.D)[None, :]
        place = att_parts + tl.program_id(0) * (FORM.H * FORM.D) + within
        tl.store(place, tl.sum(tl.sum(att_sum, 1), 0), mask=mask)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_grad_src_kernel(
    items,
    operands,
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
    kept_factor,
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
    own_values, own_keys = of_sources(operands, row[:, None], real[:, None], head, column, value_column, FORM)
    settings = score_settings(operands, factor, head, column, FORM)

    value_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_V], 0.0, FORM.ACC)
    if FORM.RULE == GAT:
        key_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS], 0.0, FORM.ACC)
    else:
        key_sum = tl.full([FORM.ROWS, FORM.EDGES, FORM.HEADS, FORM.BLOCK_D], 0.0, FORM.ACC)
    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        inside, target, number, ahead = step_ahead(items, ahead, begin, end, done, FORM.EDGES)
        normaliser = head_numbers(statistics, 2 * target, inside, head, FORM.H, FORM.ACC)
        product = head_numbers(statistics, 2 * target + 1, inside, head, FORM.H, FORM.ACC)
        grads = feature_rows(grad, target, inside, head, value_column, FORM.H, FORM.V, FORM.ACC)
        queries = of_destinations(operands, target, inside, head, column, FORM)
        values, _, raw, score = scored(
            operands, own_values, own_keys, queries, settings, number, inside, head, column, FORM
        )
        weight, slope = weights_and_slopes(
            operands,
            grad_weights,
            score,
            normaliser,
            product,
            values,
            grads,
            number,
            inside,
            head,
            (base, threshold, kept_factor),
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
