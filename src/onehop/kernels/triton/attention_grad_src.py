"""The gradient of attention to what sources have: a sweep over the edges of every source."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    GAT,
    GATV2,
    NO_EDGE,
    NO_MASK,
    attention_vector,
    caller_numbers,
    edge_features,
    feature_rows,
    head_numbers,
    leaky,
    multipliers,
    number_of_two,
    pieces,
    through_leaky,
)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_grad_src_kernel(
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
    WEIGHTS: tl.constexpr,
    FOR_VALUE: tl.constexpr,
    FOR_KEY: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes ROWS items of sources; rows of destinations, and their statistics, are gathered."""
    ACC: tl.constexpr = tl.float64 if value.dtype.element_ty == tl.float64 else tl.float32
    row, begin, end, slot, real = pieces(
        item_row, item_begin, item_end, item_slot, tl.program_id(0), first, count, ROWS, SPLIT
    )
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    lane = tl.arange(0, EDGES)
    factor, kept = number_of_two(factor_high, factor_low, ACC), number_of_two(kept_high, kept_low, ACC)
    heads_there = (head < H)[None, :]

    values = feature_rows(value, row[:, None], real[:, None], head, value_column, H, V, ACC)
    vector = values
    if RULE == GAT:
        keys = head_numbers(key, row[:, None], real[:, None], head, H, ACC)
        key_sum = tl.zeros([ROWS, EDGES, HEADS], ACC)
    elif RULE == GATV2:
        vector = attention_vector(att, head, column, H, D)
    else:
        keys = feature_rows(key, row[:, None], real[:, None], head, column, H, D, ACC)
        key_sum = tl.zeros([ROWS, EDGES, HEADS, BLOCK_D], ACC)
    value_sum = tl.zeros([ROWS, EDGES, HEADS, BLOCK_V], ACC)

    longest = tl.max(end - begin, 0).to(tl.int32)
    for done in tl.range(0, longest, EDGES, num_stages=STAGES):
        at = begin[:, None] + (done + lane)[None, :]
        inside = at < end[:, None]
        target = tl.load(col + at, mask=inside, other=0).to(tl.int64)
        number = caller_numbers(perm, at, inside)
        valid = inside[:, :, None] & heads_there[:, None, :]
        place = statistics + target[:, :, None] * (2 * H) + head[None, None, :]
        normaliser = tl.load(place, mask=valid, other=0.0)
        product = tl.load(place + H, mask=valid, other=0.0)
        grads = feature_rows(grad, target, inside, head, value_column, H, V, ACC)

        edge_values = values
        if RULE == GAT:
            raw = head_numbers(query, target, inside, head, H, ACC) + keys
            if EDGE != NO_EDGE:
                raw += head_numbers(edge, number, inside, head, H, ACC)
            score = leaky(raw, factor)
        elif RULE == GATV2:
            raw = feature_rows(query, target, inside, head, column, H, D, ACC) + values
            if EDGE != NO_EDGE:
                raw += edge_features(edge, edge_weight, number, inside, head, column, H, D, K, EDGE, ACC)
            score = tl.sum(leaky(raw, factor) * vector, 3)
        else:
            queries = feature_rows(query, target, inside, head, column, H, D, ACC)
            if EDGE != NO_EDGE:
                extra = edge_features(edge, edge_weight, number, inside, head, column, H, D, K, EDGE, ACC)
                score = tl.sum(queries * (keys + extra), 3) * factor
                edge_values = values + extra
            else:
                score = tl.sum(queries * keys, 3) * factor

        weight = tl.exp(tl.where(valid, score - normaliser, float("-inf")))
        masked_weight = weight
        slope = tl.sum(grads * edge_values, 3)
        if MASK != NO_MASK:
            multiplier = multipliers(mask, number, inside, head, base, threshold, kept, H, MASK, ACC)
            masked_weight = weight * multiplier
            slope *= multiplier
        if WEIGHTS:
            to_weight = head_numbers(grad_weights, number, inside, head, H, ACC)
            # Weights that are returned are masked but for the dot product's.
            if MASK != NO_MASK and RULE != DOT:
                to_weight *= multiplier
            slope += to_weight
        slope = tl.where(valid, weight * (slope - product), 0.0)

        if FOR_VALUE:
            value_sum += masked_weight[:, :, :, None] * grads
            if RULE == GATV2:
                value_sum += slope[:, :, :, None] * through_leaky(vector, raw, factor)
        if FOR_KEY:
            if RULE == GAT:
                key_sum += through_leaky(slope, raw, factor)
            elif RULE == DOT:
                key_sum += (slope * factor)[:, :, :, None] * queries

    whole, part = real & (slot < 0), real & (slot >= 0)
    if FOR_VALUE:
        within = head[:, None] * V + value_column[None, :]
        there = ((head < H)[:, None] & (value_column < V)[None, :])[None, :, :]
        result = tl.sum(value_sum, 1)
        place = row[:, None, None] * (H * V) + within[None, :, :]
        tl.store(grad_value + place, result, mask=whole[:, None, None] & there)
        if SPLIT:
            place = slot[:, None, None] * (H * V) + within[None, :, :]
            tl.store(slot_values + place, result, mask=part[:, None, None] & there)
    if FOR_KEY:
        result = tl.sum(key_sum, 1)
        if RULE == GAT:
            place = row[:, None] * H + head[None, :]
            tl.store(grad_key + place, result, mask=whole[:, None] & heads_there)
            if SPLIT:
                place = slot[:, None] * H + head[None, :]
                tl.store(slot_keys + place, result, mask=part[:, None] & heads_there)
        else:
            within = head[:, None] * D + column[None, :]
            there = ((head < H)[:, None] & (column < D)[None, :])[None, :, :]
            place = row[:, None, None] * (H * D) + within[None, :, :]
            tl.store(grad_key + place, result, mask=whole[:, None, None] & there)
            if SPLIT:
                place = slot[:, None, None] * (H * D) + within[None, :, :]
                tl.store(slot_keys + place, result, mask=part[:, None, None] & there)
