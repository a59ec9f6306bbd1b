"""Max and min with the winner of every entry on the GPU; NaN never wins.

Winners are positions of edges in the graph's own order. Each lane of a tile keeps the best of its edges and
that edge's position; lanes, and the slots of split rows, are merged by value, then by position.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import ArgExtremum, accumulator, heads_of
from onehop.kernels.triton.item_tiles import (
    columns_of,
    edge_weights,
    item_places,
    next_edges,
    other_ends,
    store_results,
    tile_items,
)
from onehop.kernels.triton.launch import packed, rows_of, sweep
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan

# No edge has this position, because a graph has fewer edges.
BEYOND = tl.constexpr(2**31 - 1)


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_kernel(
    items,
    x_ptr,
    weight_ptr,
    winners_ptr,
    out_ptr,
    winner_ptr,
    partial_ptr,
    partial_winner_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    LARGEST: tl.constexpr,
    LAST: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A tile [ROWS, EDGES, FEATURES] iterates over the edges of ROWS items, EDGES of each at a time.

    If x are extrema of slots, ``winners_ptr``, with the layout of x, has the winner of each element.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    WORST: tl.constexpr = float("-inf") if LARGEST else float("inf")
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row, slot = item_places(items, item, there)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    best = tl.full([ROWS, EDGES, FEATURES], WORST, ACC)
    winner = tl.full([ROWS, EDGES, FEATURES], -1, tl.int32)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        message = columns_of(x_ptr, source, live, column, X_STRIDE, WIDTH, WORST).to(ACC)
        if weight_ptr is not None:
            message *= edge_weights(items, weight_ptr, at, live, column, WIDTH, HEADS)
        if winners_ptr is not None:
            place = columns_of(winners_ptr, source, live, column, WIDTH, WIDTH, -1)
        else:
            place = tl.where(live, at, -1).to(tl.int32)[:, :, None]
        if LARGEST:
            better = (message >= best) if LAST else (message > best)
        else:
            better = (message <= best) if LAST else (message < best)
        # A slot without a winner must not win by its infinite value.
        better &= place >= 0
        best = tl.where(better, message, best)
        winner = tl.where(better, place, winner)
    if LARGEST:
        result = tl.max(best, axis=1)
    else:
        result = tl.min(best, axis=1)
    wins = (best == result[:, None, :]) & (winner >= 0)
    if LAST:
        place = tl.max(tl.where(wins, winner, -1), axis=1)
    else:
        place = tl.min(tl.where(wins, winner, BEYOND), axis=1)
        place = tl.where(place == BEYOND, -1, place)
    store_results(out_ptr, partial_ptr, row, slot, there, result, column, WIDTH)
    store_results(winner_ptr, partial_winner_ptr, row, slot, there, place, column, WIDTH)


def arg_extremum(work: Work, plan: TritonPlan, call: ArgExtremum) -> tuple[Tensor, Tensor]:
    """Return the results of a call; ``work`` is on the device of the features."""
    x, weight = call.x, call.weight
    out = x.new_empty((work.rows, x.size(1)))
    winner = torch.empty_like(out, dtype=torch.int32)
    if out.numel() == 0:
        return out, winner

    slots = work.slots_like(out, accumulator(x.dtype)), work.slots_like(out, torch.int32)
    for over, rows, places, filled in work.sweeps(rows_of(x), *slots):
        edge_weight = packed(weight) if over is work else None
        sweep(
            arg_extremum_kernel,
            over,
            plan,
            (rows, edge_weight, *places, out, winner, *filled),
            rows.size(1),
            numbered=weight is not None,
            X_STRIDE=rows.stride(0),
            HEADS=heads_of(edge_weight),
            LARGEST=call.reduce == "max",
            LAST=call.last,
        )
    return out, winner
