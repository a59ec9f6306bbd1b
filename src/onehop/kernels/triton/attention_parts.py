"""What the attention kernels have in common: rows of features, scores, the dropout mask.

Tiles have the axes [rows, edges of a row, heads, columns]; "rows" are pieces of rows, as work items name
them.
"""

import triton
import triton.language as tl

# How scores are made (onehop.kernels.attention_operands.Rule).
GAT = tl.constexpr(0)
GATV2 = tl.constexpr(1)
DOT = tl.constexpr(2)

# What an edge brings along.
NO_EDGE = tl.constexpr(0)
EDGE_ROWS = tl.constexpr(1)
EDGE_PROJECTED = tl.constexpr(2)

# What the softmaxed weights are multiplied by.
NO_MASK = tl.constexpr(0)
MASK_TENSOR = tl.constexpr(1)
MASK_DROPOUT = tl.constexpr(2)


@triton.jit
def pieces(
    item_row, item_begin, item_end, item_slot, tile, first, count, ROWS: tl.constexpr, SPLIT: tl.constexpr
):
    """Row, first edge, end and slot of a tile's items, [rows]; past the last item, pieces without edges.

    The last result tells where there is an item.
    """
    number = tile * ROWS + tl.arange(0, ROWS)
    real = number < count
    item = first + number
    row = tl.load(item_row + item, mask=real, other=0).to(tl.int64)
    begin = tl.load(item_begin + item, mask=real, other=0).to(tl.int64)
    end = tl.load(item_end + item, mask=real, other=0).to(tl.int64)
    slot = tl.full([ROWS], -1, tl.int64)
    if SPLIT:
        slot = tl.load(item_slot + item, mask=real, other=-1).to(tl.int64)
    return row, begin, end, slot, real


@triton.jit
def caller_numbers(perm, at, inside):
    """The caller's numbers of the edges at these places, int64."""
    if perm is not None:
        return tl.load(perm + at, mask=inside, other=0).to(tl.int64)
    else:
        return at


@triton.jit
def feature_rows(x, row, inside, head, column, H: tl.constexpr, D: tl.constexpr, ACC: tl.constexpr):
    """x[row], [N, H, D] in memory, as a tile of the accumulator's dtype; ``row`` is [rows, edges]."""
    within = head[None, None, :, None] * D + column[None, None, None, :]
    there = (head < H)[None, None, :, None] & (column < D)[None, None, None, :]
    place = x + row[:, :, None, None] * (H * D) + within
    return tl.load(place, mask=inside[:, :, None, None] & there, other=0.0).to(ACC)


@triton.jit
def head_numbers(x, row, inside, head, H: tl.constexpr, ACC: tl.constexpr):
    """x[row], [N, H] in memory, as [rows, edges, heads]."""
    place = x + row[:, :, None] * H + head[None, None, :]
    there = inside[:, :, None] & (head < H)[None, None, :]
    return tl.load(place, mask=there, other=0.0).to(ACC)


@triton.jit
def edge_features(
    edge,
    edge_weight,
    number,
    inside,
    head,
    column,
    H: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    EDGE: tl.constexpr,
    ACC: tl.constexpr,
):
    """The edges' features, as they lie in memory or projected by ``edge_weight`` [K, H * D]."""
    if EDGE == EDGE_ROWS:
        return feature_rows(edge, number, inside, head, column, H, D, ACC)
    else:
        within = head[:, None] * D + column[None, :]
        there = (head < H)[:, None] & (column < D)[None, :]
        total = tl.zeros([number.shape[0], number.shape[1], head.shape[0], column.shape[0]], ACC)
        for k in range(K):
            feature = tl.load(edge + number * K + k, mask=inside, other=0.0).to(ACC)
            weight = tl.load(edge_weight + k * (H * D) + within, mask=there, other=0.0)
            total += feature[:, :, None, None] * weight[None, None, :, :]
        return total


@triton.jit
def leaky(x, slope):
    """Leaky relu."""
    return tl.where(x > 0, x, x * slope)


@triton.jit
def through_leaky(grad, x, slope):
    """The gradient to what a leaky relu was given."""
    return tl.where(x > 0, grad, grad * slope)


@triton.jit
def mix(x):
    """``lowbias32``, as :func:`onehop.reference.dropout.mix` has it; uint32."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def multipliers(
    mask,
    number,
    inside,
    head,
    base,
    threshold,
    kept,
    H: tl.constexpr,
    MASK: tl.constexpr,
    ACC: tl.constexpr,
):
    """What the weights are multiplied by, [rows, edges, heads]: a mask's entries, or 0 and ``kept``.

    The dropout of :func:`onehop.reference.dropout.dropout_mask`; ``base`` and ``threshold`` are its words.
    """
    if MASK == MASK_TENSOR:
        return head_numbers(mask, number, inside, head, H, ACC)
    else:
        step = tl.full([], 0x9E3779B9, tl.uint32)
        first = mix(base.to(tl.uint32) + head.to(tl.uint32) * step)
        second = mix(first + step)
        low, high = number.to(tl.uint32), (number >> 32).to(tl.uint32)
        noise = mix(mix(low[:, :, None] ^ first[None, None, :]) + (second[None, None, :] ^ high[:, :, None]))
        return tl.where(noise >= threshold.to(tl.uint32), kept, 0.0)


@triton.jit
def number_of_two(high, low, ACC: tl.constexpr):
    """A number that came in two parts, since kernels take numbers of 32 bits."""
    return tl.full([], high, ACC) + tl.full([], low, ACC)


@triton.jit
def own_rows(
    query, row, real, head, column, RULE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, ACC: tl.constexpr
):
    """What a destination brings to the scores of its edges: [rows, 1, heads], or with columns."""
    if RULE == GAT:
        return head_numbers(query, row[:, None], real[:, None], head, H, ACC)
    else:
        return feature_rows(query, row[:, None], real[:, None], head, column, H, D, ACC)


@triton.jit
def attention_vector(att, head, column, H: tl.constexpr, D: tl.constexpr):
    """GATv2's [H, D] as a tile."""
    there = (head < H)[:, None] & (column < D)[None, :]
    place = att + head[:, None] * D + column[None, :]
    return tl.load(place, mask=there, other=0.0)[None, None, :, :]


@triton.jit
def scored_edges(
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
    RULE: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    K: tl.constexpr,
    EDGE: tl.constexpr,
    ACC: tl.constexpr,
):
    """Values, keys, what the leaky relu is given, and scores, for edges of rows that hold ``own``.

    Where a rule has no keys, or no leaky relu, something else stands in their place.
    """
    values = feature_rows(value, source, inside, head, value_column, H, V, ACC)
    if RULE == GAT:
        raw = head_numbers(key, source, inside, head, H, ACC) + own
        if EDGE != NO_EDGE:
            raw += head_numbers(edge, number, inside, head, H, ACC)
        return values, values, raw, leaky(raw, factor)
    elif RULE == GATV2:
        raw = values + own
        if EDGE != NO_EDGE:
            raw += edge_features(edge, edge_weight, number, inside, head, column, H, D, K, EDGE, ACC)
        return values, values, raw, tl.sum(leaky(raw, factor) * vector, 3)
    else:
        keys = feature_rows(key, source, inside, head, column, H, D, ACC)
        if EDGE != NO_EDGE:
            extra = edge_features(edge, edge_weight, number, inside, head, column, H, D, K, EDGE, ACC)
            keys += extra
            values += extra
        score = tl.sum(keys * own, 3) * factor
        return values, keys, score, score
