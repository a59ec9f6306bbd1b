"""The gradient of attention to what destinations have: a sweep over every destination's edges."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    EDGE_PROJECTED,
    GAT,
    GATV2,
    NO_MASK,
    attention_vector,
    caller_numbers,
    feature_rows,
    head_numbers,
    leaky,
    multipliers,
    number_of_two,
    own_rows,
    pieces,
    scored_edges,
    through_leaky,
)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_grad_dst_kernel(
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
    FOR_QUERY: tl.constexpr,
    FOR_ATT: tl.constexpr,
    FOR_EDGE: tl.constexpr,
    FOR_EDGE_WEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes tiles of ROWS items, one after another; what all edges add to is kept for each program.

    Statistics, [rows, 2, H], are for the sweep over sources: the logarithm of the sum of exponentials, and
    the row's sum of weights times their gradients, which is grad . out. Pieces of a cut row all write them,
    and all write the same.
    """
    ACC: tl.constexpr = tl.float64 if value.dtype.element_ty == tl.float64 else tl.float32
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    lane = tl.arange(0, EDGES)
    factor, kept = number_of_two(factor_high, factor_low, ACC), number_of_two(kept_high, kept_low, ACC)
    heads_there = (head < H)[None, :]
    within = head[:, None] * D + column[None, :]
    columns_there = (head < H)[:, None] & (column < D)[None, :]
    if FOR_ATT:
        att_sum = tl.zeros([ROWS, EDGES, HEADS, BLOCK_D], ACC)

    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row, begin, end, slot, real = pieces(
            item_row, item_begin, item_end, item_slot, tile, first, count, ROWS, SPLIT
        )
        own = own_rows(query, row, real, head, column, RULE, H, D, ACC)
        vector = own
        if RULE == GATV2:
            vector = attention_vector(att, head, column, H, D)
        own_grad = feature_rows(grad, row[:, None], real[:, None], head, value_column, H, V, ACC)
        own_out = feature_rows(out, row[:, None], real[:, None], head, value_column, H, V, ACC)
        product = tl.sum(own_grad * own_out, 3)
        if WEIGHTS:
            product += head_numbers(weights_product, row[:, None], real[:, None], head, H, ACC)
        row_place = softmax + row[:, None] * (2 * H) + head[None, :]
        there = real[:, None] & heads_there
        inverse = tl.load(row_place + H, mask=there, other=1.0)
        normaliser = tl.load(row_place, mask=there, other=0.0) - tl.log(tl.where(inverse == 0, 1.0, inverse))
        row_place = statistics + row[:, None] * (2 * H) + head[None, :]
        tl.store(row_place, normaliser, mask=there)
        tl.store(row_place + H, tl.sum(product, 1), mask=there)

        if RULE == GAT:
            sums = tl.zeros([ROWS, EDGES, HEADS], ACC)
        else:
            sums = tl.zeros([ROWS, EDGES, HEADS, BLOCK_D], ACC)
        longest = tl.max(end - begin, 0).to(tl.int32)
        for done in tl.range(0, longest, EDGES, num_stages=STAGES):
            at = begin[:, None] + (done + lane)[None, :]
            inside = at < end[:, None]
            source = tl.load(col + at, mask=inside, other=0).to(tl.int64)
            number = caller_numbers(perm, at, inside)
            values, keys, raw, score = scored_edges(
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
            valid = inside[:, :, None] & heads_there[:, None, :]
            weight = tl.exp(tl.where(valid, score - normaliser[:, None, :], float("-inf")))
            slope = tl.sum(values * own_grad, 3)
            masked_weight = weight
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

            if RULE == GAT:
                slope = through_leaky(slope, raw, factor)
                sums += slope
                if FOR_EDGE:
                    place = grad_edge + number[:, :, None] * H + head[None, None, :]
                    tl.store(place, slope, mask=valid)
            else:
                if RULE == GATV2:
                    rows = slope[:, :, :, None] * through_leaky(vector, raw, factor)
                    sums += rows
                    if FOR_ATT:
                        att_sum += slope[:, :, :, None] * leaky(raw, factor)
                else:
                    slope *= factor
                    sums += slope[:, :, :, None] * keys
                    if FOR_EDGE or FOR_EDGE_WEIGHT:
                        rows = slope[:, :, :, None] * own + masked_weight[:, :, :, None] * own_grad
                if EDGE == EDGE_PROJECTED:
                    if FOR_EDGE or FOR_EDGE_WEIGHT:
                        for k in range(K):
                            if FOR_EDGE:
                                place = edge_weight + k * (H * D) + within
                                weights = tl.load(place, mask=columns_there, other=0.0)[None, None, :, :]
                                feature_grad = tl.sum(tl.sum(rows * weights, 3), 2)
                                tl.store(grad_edge + number * K + k, feature_grad, mask=inside)
                            if FOR_EDGE_WEIGHT:
                                feature = tl.load(edge + number * K + k, mask=inside, other=0.0).to(ACC)
                                part = tl.sum(tl.sum(rows * feature[:, :, None, None], 1), 0)
                                place = weight_parts + (tl.program_id(0) * K + k) * (H * D) + within
                                before = tl.load(place, mask=columns_there, other=0.0)
                                tl.store(place, before + part, mask=columns_there)
                                # Another thread may read it the next time.
                                tl.debug_barrier()
                elif FOR_EDGE:
                    place = grad_edge + number[:, :, None, None] * (H * D) + within[None, None, :, :]
                    tl.store(place, rows, mask=inside[:, :, None, None] & columns_there[None, None, :, :])

        if FOR_QUERY:
            row_sum = tl.sum(sums, 1)
            whole, part = real & (slot < 0), real & (slot >= 0)
            if RULE == GAT:
                place = row[:, None] * H + head[None, :]
                tl.store(grad_query + place, row_sum, mask=whole[:, None] & heads_there)
                if SPLIT:
                    place = slot[:, None] * H + head[None, :]
                    tl.store(slot_rows + place, row_sum, mask=part[:, None] & heads_there)
            else:
                place = row[:, None, None] * (H * D) + within[None, :, :]
                tl.store(grad_query + place, row_sum, mask=whole[:, None, None] & columns_there[None, :, :])
                if SPLIT:
                    place = slot[:, None, None] * (H * D) + within[None, :, :]
                    tl.store(slot_rows + place, row_sum, mask=part[:, None, None] & columns_there[None, :, :])

    if FOR_ATT:
        place = att_parts + tl.program_id(0) * (H * D) + within
        tl.store(place, tl.sum(tl.sum(att_sum, 1), 0), mask=columns_there)
