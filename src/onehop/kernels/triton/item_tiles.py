"""Index arithmetic of programs: their items, the items' edges, and where results are stored.

``items`` is :class:`onehop.kernels.triton.launch.Items`.
"""

import triton
import triton.language as tl


@triton.jit
def tile_items(items, tile, first, count, ROWS: tl.constexpr):
    """Return a tile's items, [rows]: numbers, mask, first edges and ends; and the longest item's length.

    The first item of a tile is its longest. Items beyond the last one have no edges.
    """
    head = first + tile * ROWS
    item = head + tl.arange(0, ROWS)
    there = item < first + count
    begin = tl.load(items.begin + item, mask=there, other=0)
    end = tl.load(items.end + item, mask=there, other=0)
    return item, there, begin, end, tl.load(items.end + head) - tl.load(items.begin + head)


@triton.jit
def item_rows(items, item, there):
    """Return the rows of items, [rows], int64."""
    return tl.load(items.row + item, mask=there, other=0).to(tl.int64)


@triton.jit
def item_slots(items, item, there):
    """Return the slots of pieces of split rows, -1 for whole rows, [rows], int64."""
    if items.slot is not None:
        return tl.load(items.slot + item, mask=there, other=-1).to(tl.int64)
    else:
        return tl.full([item.shape[0]], -1, tl.int64)


@triton.jit
def item_places(items, item, there):
    """Return rows and slots of items; see :func:`item_rows` and :func:`item_slots`."""
    return item_rows(items, item, there), item_slots(items, item, there)


@triton.jit
def next_edges(begin, end, done, EDGES: tl.constexpr):
    """Return the positions of each item's next edges, [rows, edges], and their mask."""
    at = begin[:, None] + done + tl.arange(0, EDGES)[None, :]
    return at, at < end[:, None]


@triton.jit
def other_ends(items, at, inside):
    """Return the columns of the edges at these positions, int64."""
    if items.col is not None:
        return tl.load(items.col + at, mask=inside, other=0).to(tl.int64)
    else:
        return at.to(tl.int64)


@triton.jit
def ends_ahead(items, begin, end, done, EDGES: tl.constexpr):
    """Return the columns of each item's next edges, [rows, edges], as stored.

    They are read one iteration before they are used, so that an iteration's gathers need not wait for
    indices.
    """
    at, inside = next_edges(begin, end, done, EDGES)
    return tl.load(items.col + at, mask=inside, other=0)


@triton.jit
def caller_numbers(items, at, inside):
    """Return the caller's numbers of the edges at these positions, int64."""
    if items.perm is not None:
        return tl.load(items.perm + at, mask=inside, other=0).to(tl.int64)
    else:
        return at.to(tl.int64)


@triton.jit
def step_ahead(items, ahead, begin, end, done, EDGES: tl.constexpr):
    """Return an iteration's edges: mask, columns, caller's numbers; and the next iteration's columns.

    ``ahead`` has this iteration's columns, which the previous iteration returned.
    """
    at, inside = next_edges(begin, end, done, EDGES)
    column = ahead.to(tl.int64)
    ahead = ends_ahead(items, begin, end, done + EDGES, EDGES)
    return inside, column, caller_numbers(items, at, inside), ahead


@triton.jit
def edge_weights(items, weight, at, inside, column, WIDTH: tl.constexpr, HEADS: tl.constexpr):
    """Load weights [E] of edges as [rows, edges, 1], or [E, HEADS] as [rows, edges, columns].

    Column h of the latter belongs to the h-th of HEADS equal groups of WIDTH columns.
    """
    number = caller_numbers(items, at, inside)
    if HEADS == 1:
        return tl.load(weight + number, mask=inside, other=0)[:, :, None]
    else:
        part = column // (WIDTH // HEADS)
        place = weight + number[:, :, None] * HEADS + part[None, None, :]
        return tl.load(place, mask=inside[:, :, None] & (column < WIDTH)[None, None, :], other=0)


@triton.jit
def store_columns(x, row, there, tile, column, WIDTH: tl.constexpr):
    """Stores [rows, columns] to x[row], where the mask ``there``, [rows], is set."""
    mask = there[:, None] & (column < WIDTH)[None, :]
    tl.store(x + (row[:, None] * WIDTH + column[None, :]), tile, mask=mask)


@triton.jit
def store_results(x, slots, row, slot, there, tile, column, WIDTH: tl.constexpr):
    """Stores items' results, [rows, columns], to rows of ``x``, or to ``slots`` for pieces of split rows."""
    if slots is not None:
        store_columns(slots, slot, there & (slot >= 0), tile, column, WIDTH)
    store_columns(x, row, there & (slot < 0), tile, column, WIDTH)


@triton.jit
def row_columns(x, row, there, column, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """Loads x[row] where ``there``, both [rows], as [rows, columns]."""
    mask = there[:, None] & (column < WIDTH)[None, :]
    return tl.load(x + row[:, None] * STRIDE + column[None, :], mask=mask, other=0)


@triton.jit
def columns_of(x, row, there, column, STRIDE: tl.constexpr, WIDTH: tl.constexpr, other=0):
    """Loads x[row] where ``there``, both [rows, edges], as [rows, edges, columns]."""
    mask = there[:, :, None] & (column < WIDTH)[None, None, :]
    return tl.load(x + (row[:, :, None] * STRIDE + column[None, None, :]), mask=mask, other=other)
