"""The softmaxed weights of attention, from its scores once more."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    GATV2,
    NO_MASK,
    attention_vector,
    caller_numbers,
    head_numbers,
    multipliers,
    number_of_two,
    own_rows,
    pieces,
    scored_edges,
)


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_weights_kernel(
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
    softmax,
    weights,
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
    """As :func:`attend_kernel`, with the softmax known; writes [E, H] in the caller's order."""
    ACC: tl.constexpr = tl.float64 if value.dtype.element_ty == tl.float64 else tl.float32
    row, begin, end, _slot, real = pieces(
        item_row, item_begin, item_end, item_slot, tl.program_id(0), first, count, ROWS, SPLIT
    )
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    lane = tl.arange(0, EDGES)
    factor, kept = number_of_two(factor_high, factor_low, ACC), number_of_two(kept_high, kept_low, ACC)

    own = own_rows(query, row, real, head, column, RULE, H, D, ACC)
    vector = own
    if RULE == GATV2:
        vector = attention_vector(att, head, column, H, D)
    less = head_numbers(softmax, 2 * row[:, None], real[:, None], head, H, ACC)
    inverse = head_numbers(softmax, 2 * row[:, None] + 1, real[:, None], head, H, ACC)

    longest = tl.max(end - begin, 0).to(tl.int32)
    for done in tl.range(0, longest, EDGES, num_stages=STAGES):
        at = begin[:, None] + (done + lane)[None, :]
        inside = at < end[:, None]
        source = tl.load(col + at, mask=inside, other=0).to(tl.int64)
        number = caller_numbers(perm, at, inside)
        _values, _keys, _raw, score = scored_edges(
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
        valid = inside[:, :, None] & (head < H)[None, None, :]
        weight = tl.exp(tl.where(valid, score - less, 0.0)) * inverse
        # The dot product's weights are returned as they are before dropout and mask.
        if MASK != NO_MASK and RULE != DOT:
            weight *= multipliers(mask, number, inside, head, base, threshold, kept, H, MASK, ACC)
        place = weights + number[:, :, None] * H + head[None, None, :]
        tl.store(place, weight, mask=valid)
