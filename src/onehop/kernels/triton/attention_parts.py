"""Loads and stores of the attention kernels: rows of features, numbers of heads, the dropout mask.

Tiles have the axes [rows, edges of a row, heads, columns]; "rows" are pieces of rows, as in work items.
"""

import triton
import triton.language as tl

# The formula of the scores (onehop.kernels.attention_operands.Rule).
GAT = tl.constexpr(0)
GATV2 = tl.constexpr(1)
DOT = tl.constexpr(2)

# The kind of edge features.
NO_EDGE = tl.constexpr(0)
EDGE_ROWS = tl.constexpr(1)
EDGE_PROJECTED = tl.constexpr(2)

# The kind of factors of the weights after the softmax.
NO_MASK = tl.constexpr(0)
MASK_TENSOR = tl.constexpr(1)
MASK_DROPOUT = tl.constexpr(2)


@triton.jit
def feature_rows(x, row, inside, head, column, H: tl.constexpr, D: tl.constexpr, ACC: tl.constexpr):
    """Loads x[row], [N, H, D] in memory, as a tile of the accumulator's dtype; ``row`` is [rows, edges]."""
    within = head[None, None, :, None] * D + column[None, None, None, :]
    there = (head < H)[None, None, :, None] & (column < D)[None, None, None, :]
    place = x + (row[:, :, None, None] * (H * D) + within)
    return tl.load(place, mask=inside[:, :, None, None] & there, other=0.0).to(ACC)


@triton.jit
def store_features(x, row, there, tile, head, column, H: tl.constexpr, D: tl.constexpr):
    """Stores [rows, heads, columns] to x[row], where the mask ``there``, [rows], is set."""
    within = head[None, :, None] * D + column[None, None, :]
    mask = (head < H)[None, :, None] & (column < D)[None, None, :]
    tl.store(x + (row[:, None, None] * (H * D) + within), tile, mask=there[:, None, None] & mask)


@triton.jit
def head_numbers(x, row, inside, head, H: tl.constexpr, ACC: tl.constexpr):
    """Loads x[row], [N, H] in memory, as [rows, edges, heads]."""
    place = x + row[:, :, None] * H + head[None, None, :]
    there = inside[:, :, None] & (head < H)[None, None, :]
    return tl.load(place, mask=there, other=0.0).to(ACC)


@triton.jit
def store_head_numbers(x, row, there, tile, head, H: tl.constexpr):
    """Stores [rows, heads] to x[row], where the mask ``there``, [rows], is set."""
    tl.store(x + row[:, None] * H + head[None, :], tile, mask=there[:, None] & (head < H)[None, :])


@triton.jit
def store_sums(sums, out, slots, row, slot, real, head, column, D: tl.constexpr, form: tl.constexpr):
    """Reduces [rows, edges, heads(, columns)] over edges, into rows of ``out`` or slots of pieces."""
    total = tl.sum(sums, 1)
    whole, part = real & (slot < 0), real & (slot >= 0)
    if len(sums.shape) == 3:
        store_head_numbers(out, row, whole, total, head, form.H)
        if slots is not None:
            store_head_numbers(slots, slot, part, total, head, form.H)
    else:
        store_features(out, row, whole, total, head, column, form.H, D)
        if slots is not None:
            store_features(slots, slot, part, total, head, column, form.H, D)


@triton.jit
def mix(x):
    """Return the hash ``lowbias32`` of x, uint32, as in :func:`onehop.reference.dropout.mix`."""
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
    kept_factor,
    H: tl.constexpr,
    MASK: tl.constexpr,
    ACC: tl.constexpr,
):
    """Return the factors of the weights, [rows, edges, heads]: a mask's entries, or 0 and ``kept_factor``.

    The dropout is that of :func:`onehop.reference.dropout.dropout_mask`; ``base`` and ``threshold`` are its
    words.
    """
    if MASK == MASK_TENSOR:
        return head_numbers(mask, number, inside, head, H, ACC)
    else:
        step = tl.full([], 0x9E3779B9, tl.uint32)
        first = mix(base.to(tl.uint32) + head.to(tl.uint32) * step)
        second = mix(first + step)
        low, high = number.to(tl.uint32), (number >> 32).to(tl.uint32)
        noise = mix(mix(low[:, :, None] ^ first[None, None, :]) + (second[None, None, :] ^ high[:, :, None]))
        return tl.where(noise >= threshold.to(tl.uint32), kept_factor, 0.0)


@triton.jit
def number_of_two(high, low, ACC: tl.constexpr):
    """Return a number that was passed in two parts, because kernels take 32-bit numbers."""
    return tl.full([], high, ACC) + tl.full([], low, ACC)
