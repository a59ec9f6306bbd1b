"""The softmaxed weights of attention, recomputed from its scores."""

import triton
import triton.language as tl

from onehop.kernels.triton.attention_parts import (
    DOT,
    NO_MASK,
    head_numbers,
)
from onehop.kernels.triton.attention_scores import (
    masked,
    of_destinations,
    of_sources,
    score_settings,
    scored,
)
from onehop.kernels.triton.item_tiles import caller_numbers, ends_ahead, item_rows, next_edges, tile_items


@triton.jit(do_not_specialize=["first", "count", "base", "threshold"])
def attend_weights_kernel(
    items, given, softmax, weights, first, count, base, threshold, factor, kept, FORM: tl.constexpr
):
    """Recomputes the weights from a known softmax; writes [E, H] in the caller's order."""
    item, real, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row = item_rows(items, item, real)
    head = tl.program_id(1) * FORM.HEADS + tl.arange(0, FORM.HEADS)
    column, value_column = tl.arange(0, FORM.BLOCK_D), tl.arange(0, FORM.BLOCK_V)
    queries = of_destinations(given, row[:, None], real[:, None], head, column, FORM)
    settings = score_settings(given, factor, head, column, FORM)
    less = head_numbers(softmax, 2 * row[:, None], real[:, None], head, FORM.H, FORM.ACC)
    inverse = head_numbers(softmax, 2 * row[:, None] + 1, real[:, None], head, FORM.H, FORM.ACC)

    ahead = ends_ahead(items, begin, end, 0, FORM.EDGES)
    for done in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, inside = next_edges(begin, end, done, FORM.EDGES)
        source = ahead.to(tl.int64)
        ahead = ends_ahead(items, begin, end, done + FORM.EDGES, FORM.EDGES)
        number = caller_numbers(items, at, inside)
        values, keys = of_sources(given, source, inside, head, column, value_column, FORM)
        _, _, _, score = scored(given, values, keys, queries, settings, number, inside, head, column, FORM)
        valid = inside[:, :, None] & (head < FORM.H)[None, None, :]
        weight = tl.exp(tl.where(valid, score - less, 0.0)) * inverse
        # The dot product's weights are returned without dropout and mask.
        if FORM.MASK != NO_MASK and FORM.RULE != DOT:
            weight *= masked(given, number, inside, head, (base, threshold, kept), FORM)
        tl.store(weights + number[:, :, None] * FORM.H + head[None, None, :], weight, mask=valid)
