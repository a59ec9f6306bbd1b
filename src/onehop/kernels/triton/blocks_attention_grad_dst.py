"""The gradient of attention to queries on tensor cores: a sweep over the windows of destinations."""

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
def block_query_grad(
    windows,
    given,
    own,
    begin,
    end,
    head,
    numbers,
    COLUMNS: tl.constexpr,
    FORM: tl.constexpr,
):
    """Return [16, BLOCK_D]: the sums over some columns of a window.

    ``own`` are the window's queries, gradients, normalisers and products of these with the output.
    """
    own_query, own_grad, normaliser, product = own
    base, threshold, factor, kept = numbers
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    total = tl.zeros([16, FORM.BLOCK_D], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=FORM.STAGES):
        place, inside, row, word, present = window_columns(windows, at, end, COLUMNS)
        keys = head_rows(given.key, row, inside, head, column, FORM.H, FORM.D)
        values = head_rows(given.value, row, inside, head, value_column, FORM.H, FORM.V)
        score = dots(own_query, keys, COLUMNS) * factor
        weight = tl.exp(tl.where(present, score - normaliser[:, None], float("-inf")))
        slope = dots(own_grad, values, COLUMNS)
        if FORM.DROPOUT:
            slope *= kept * kept_edges(windows, place, inside, word, present, head, base, threshold, FORM.H)
        slope = tl.where(present, weight * (slope - product[:, None]), 0.0)
        total = added(total, slope, present, keys, COLUMNS)
    return total * factor


@triton.jit(do_not_specialize=["rows", "base", "threshold"])
def block_grad_dst_kernel(
    windows,
    given,
    out,
    softmax,
    grad,
    statistics,
    grad_query,
    slot_rows,
    rows,
    base,
    threshold,
    factor,
    kept,
    FOR_QUERY: tl.constexpr,
    FORM: tl.constexpr,
):
    """Processes one item and head per program. Statistics are those of :func:`attend_grad_dst_kernel`."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, _filled = window_rows(windows, item, rows, FORM.SPLIT)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    own_grad = head_rows(grad, row, there, head, value_column, FORM.H, FORM.V)
    own_out = head_rows(out, row, there, head, value_column, FORM.H, FORM.V)
    product = tl.sum(own_grad.to(tl.float32) * own_out.to(tl.float32), 1)
    place = softmax + row * (2 * FORM.H) + head
    inverse = tl.load(place + FORM.H, mask=there, other=1.0)
    normaliser = tl.load(place, mask=there, other=0.0) - tl.log(tl.where(inverse == 0, 1.0, inverse))
    # All pieces of a window write the same values.
    place = statistics + row * (2 * FORM.H) + head
    tl.store(place, normaliser, mask=there)
    tl.store(place + FORM.H, product, mask=there)
    if FOR_QUERY:
        begin, end = tl.load(windows.begin + item), tl.load(windows.end + item)
        own_query = head_rows(given.query, row, there, head, column, FORM.H, FORM.D)
        own, numbers = (own_query, own_grad, normaliser, product), (base, threshold, factor, kept)
        total = block_query_grad(windows, given, own, begin, end, head, numbers, FORM.COLUMNS, FORM)
        if not_numbers(total):
            total = block_query_grad(windows, given, own, begin, end, head, numbers, 1, FORM)
        within = (head * FORM.D + column)[None, :]
        inside = (column < FORM.D)[None, :]
        tl.store(grad_query + row[:, None] * (FORM.H * FORM.D) + within, total, mask=whole[:, None] & inside)
        if FORM.SPLIT:
            tl.store(
                slot_rows + slot[:, None] * (FORM.H * FORM.D) + within, total, mask=part[:, None] & inside
            )
