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
    source,
    members,
    first_edge,
    perm,
    own,
    own_grad,
    normaliser,
    product,
    key,
    value,
    begin,
    end,
    head,
    base,
    threshold,
    factor,
    kept,
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return [16, BLOCK_D]: the sums over some columns of a window."""
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    total = tl.zeros([16, BLOCK_D], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=STAGES):
        place, inside, row, word, present = window_columns(source, members, at, end, COLUMNS)
        keys = head_rows(key, row, inside, head, column, H, D)
        values = head_rows(value, row, inside, head, value_column, H, V)
        score = dots(own, keys, COLUMNS) * factor
        weight = tl.exp(tl.where(present, score - normaliser[:, None], float("-inf")))
        slope = dots(own_grad, values, COLUMNS)
        if DROPOUT:
            slope *= kept * kept_edges(
                first_edge, perm, place, inside, word, present, head, base, threshold, H
            )
        slope = tl.where(present, weight * (slope - product[:, None]), 0.0)
        total = added(total, slope, present, keys, COLUMNS)
    return total * factor


@triton.jit(do_not_specialize=["rows", "base", "threshold"])
def block_grad_dst_kernel(
    item_window,
    item_begin,
    item_end,
    item_piece,
    row_slot,
    source,
    members,
    first_edge,
    perm,
    query,
    key,
    value,
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
    H: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    DROPOUT: tl.constexpr,
    FOR_QUERY: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes one item and head per program. Statistics are those of :func:`attend_grad_dst_kernel`."""
    item, head = tl.program_id(0), tl.program_id(1)
    row, there, whole, slot, part, _filled = window_rows(item_window, item_piece, row_slot, item, rows, SPLIT)
    column, value_column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    own_grad = head_rows(grad, row, there, head, value_column, H, V)
    own_out = head_rows(out, row, there, head, value_column, H, V)
    product = tl.sum(own_grad.to(tl.float32) * own_out.to(tl.float32), 1)
    place = softmax + row * (2 * H) + head
    inverse = tl.load(place + H, mask=there, other=1.0)
    normaliser = tl.load(place, mask=there, other=0.0) - tl.log(tl.where(inverse == 0, 1.0, inverse))
    # All pieces of a window write the same values.
    place = statistics + row * (2 * H) + head
    tl.store(place, normaliser, mask=there)
    tl.store(place + H, product, mask=there)
    if FOR_QUERY:
        begin, end = tl.load(item_begin + item), tl.load(item_end + item)
        own = head_rows(query, row, there, head, column, H, D)
        total = block_query_grad(
            source,
            members,
            first_edge,
            perm,
            own,
            own_grad,
            normaliser,
            product,
            key,
            value,
            begin,
            end,
            head,
            base,
            threshold,
            factor,
            kept,
            H,
            D,
            V,
            DROPOUT,
            COLUMNS,
            BLOCK_D,
            BLOCK_V,
            STAGES,
        )
        if not_numbers(total):
            total = block_query_grad(
                source,
                members,
                first_edge,
                perm,
                own,
                own_grad,
                normaliser,
                product,
                key,
                value,
                begin,
                end,
                head,
                base,
                threshold,
                factor,
                kept,
                H,
                D,
                V,
                DROPOUT,
                1,
                BLOCK_D,
                BLOCK_V,
                STAGES,
            )
        within = (head * D + column)[None, :]
        inside = (column < D)[None, :]
        tl.store(grad_query + row[:, None] * (H * D) + within, total, mask=whole[:, None] & inside)
        if SPLIT:
            tl.store(slot_rows + slot[:, None] * (H * D) + within, total, mask=part[:, None] & inside)
