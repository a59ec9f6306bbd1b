"""Common parts of the kernels over blocks: rows of a window, its columns, products on tensor cores.

``windows`` is :class:`onehop.kernels.triton.launch.Windows`. Tiles have the axes [16 rows of a window,
COLUMNS of its columns]. With COLUMNS = 1, products are computed edge by edge: a dense product multiplies
features also by the zeros of rows that have no such edge, and zero times infinity or NaN is NaN. So a window
whose sums contain NaN is computed again this way.
"""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import MASK_DROPOUT, multipliers

WINDOW = tl.constexpr(16)
# Values of ``row_slot``: a row with edges, of a window that was not split; a row without edges.
FILLED = tl.constexpr(-1)
EMPTY = tl.constexpr(-2)


@triton.jit
def window_rows(windows, item, rows, SPLIT: tl.constexpr):
    """An item's rows, [16], and masks: which exist; which it finishes; slots, and which have one.

    The last result marks the rows with edges among those that it finishes. The first piece of a split window
    finishes its rows without edges.
    """
    row = tl.load(windows.window + item).to(tl.int64) * WINDOW + tl.arange(0, WINDOW)
    there = row < rows
    slot = tl.load(windows.row_slot + row, mask=there, other=EMPTY)
    whole, part, filled = there & (slot < 0), slot >= 0, slot == FILLED
    if SPLIT:
        piece = tl.load(windows.piece + item)
        whole &= tl.full([WINDOW], piece, tl.int32) == 0
        slot += piece
    return row, there, whole, slot.to(tl.int64), part, filled


@triton.jit
def window_columns(windows, at, end, COLUMNS: tl.constexpr):
    """Some columns' places, sources, and words, [COLUMNS]; and whether each row has each."""
    place = at + tl.arange(0, COLUMNS)
    inside = place < end
    word = tl.load(windows.members + place, mask=inside, other=0).to(tl.int32)
    present = ((word[None, :] >> tl.arange(0, WINDOW)[:, None]) & 1) != 0
    return place, inside, tl.load(windows.source + place, mask=inside, other=0).to(tl.int64), word, present


@triton.jit
def edge_numbers(windows, place, inside, word, present):
    """The caller's numbers of a tile's edges, int64: a column's edges are stored in the order of its rows."""
    above = word[None, :] & ((1 << tl.arange(0, WINDOW)[:, None]) - 1)
    above -= (above >> 1) & 0x5555
    above = (above & 0x3333) + ((above >> 2) & 0x3333)
    above = (above + (above >> 4)) & 0x0F0F
    count = (above + (above >> 8)) & 0x1F
    edge = tl.load(windows.first_edge + place, mask=inside, other=0).to(tl.int64)[None, :] + count
    return tl.load(windows.perm + edge, mask=present, other=0).to(tl.int64)


@triton.jit
def head_rows(x, row, there, head, column, H: tl.constexpr, D: tl.constexpr):
    """Loads x[row] of one head, [N, H, D] in memory, as [rows, columns]."""
    place = x + row[:, None] * (H * D) + head * D + column[None, :]
    return tl.load(place, mask=there[:, None] & (column < D)[None, :], other=0.0)


@triton.jit
def dots(own, gathered, COLUMNS: tl.constexpr):
    """Dot products of the window's rows, [16, D], with gathered ones, [COLUMNS, D], in float32."""
    if COLUMNS == 1:
        return tl.sum(own.to(tl.float32) * gathered.to(tl.float32), 1)[:, None]
    else:
        return tl.dot(own, tl.trans(gathered))


@triton.jit
def added(total, factor, present, gathered, COLUMNS: tl.constexpr):
    """``total + factor @ gathered``; the factors, 0 where there is no edge, are rounded to 16 bits."""
    if COLUMNS == 1:
        return total + tl.where(present, factor * gathered.to(tl.float32), 0.0)
    else:
        return tl.dot(factor.to(gathered.dtype), gathered, total)


@triton.jit
def added_precisely(total, factor, present, gathered, COLUMNS: tl.constexpr):
    """Adds like :func:`added`, with factors of 21 bits: two of tensor cores' 32-bit format, which keeps 11.

    Features of 16 bits are exact in that format.
    """
    if COLUMNS == 1:
        return total + tl.where(present, factor * gathered.to(tl.float32), 0.0)
    else:
        high = (factor.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)
        low = tl.where(tl.abs(factor) < float("inf"), factor - high, 0.0)
        wide = gathered.to(tl.float32)
        total = tl.dot(high, wide, total, input_precision="tf32")
        return tl.dot(low, wide, total, input_precision="tf32")


@triton.jit
def not_numbers(total):
    """Return whether any of them is NaN."""
    return tl.max(tl.max((total != total).to(tl.int32), 1), 0) > 0


@triton.jit
def kept_edges(windows, place, inside, word, present, head, base, threshold, H: tl.constexpr):
    """Return 1 for the edges of a tile that dropout keeps, else 0, by the caller's edge numbers."""
    number = edge_numbers(windows, place, inside, word, present)
    heads = tl.full([1], head, tl.int32)
    drawn = multipliers(None, number, present, heads, base, threshold, 1.0, H, MASK_DROPOUT, tl.float32)
    return tl.sum(drawn, 2)
