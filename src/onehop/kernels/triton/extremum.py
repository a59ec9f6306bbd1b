"""Max and min on the GPU, with data for their gradient: the edge of each extremum, or the number of ties.

Both are encoded in one number, the state of an element: 0 before any edge, 1 + p if only the edge at position
p of the row equals the extremum, and -n if n edges do.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import Extremum, accumulator
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
    item_places,
    next_edges,
    other_ends,
    store_columns,
    tile_items,
)
from onehop.kernels.triton.launch import packed, rows_of, sweep
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit
def weighed(x, weight, ADDS: tl.constexpr):
    """Return messages: features plus weights, or times weights."""
    if ADDS:
        return x + weight
    else:
        return x * weight


# Integers are exact in float32 up to this number; a single edge at a later position is saved as a tie of one.
LAST_POSITION = tl.constexpr(2**24)


@triton.jit
def edges_of(state):
    """Return the number of edges that a state counts."""
    return tl.where(state > 0, 1, -state)


@triton.jit
def tied(one, other):
    """Return the joint state of two parts of a row with the same extremum."""
    both = (one != 0) & (other != 0)
    return tl.where(both, -(edges_of(one) + edges_of(other)), one + other)


@triton.jit
def saved_of(state):
    """Return the saved form of a state: the number of edges, or, for one edge, minus the state if exact."""
    single = (state > 0) & (state <= LAST_POSITION)
    return tl.where(single, -state, edges_of(state))


@triton.jit(do_not_specialize=["first", "count"])
def extremum_kernel(
    items,
    x_ptr,
    weight_ptr,
    row_begin_ptr,
    states_ptr,
    out_ptr,
    ties_ptr,
    partial_ptr,
    partial_states_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    LARGEST: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Keeps, in every lane of a tile, the extremum of its edges and its state; NaN propagates.

    If x are extrema of slots, ``states_ptr``, with the layout of x, has the state of each element.
    ``row_begin_ptr`` has the first edge of every row; if it is None, no states are kept. With ROUNDS,
    messages are rounded to the dtype of x, as in torch.
    """
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    WORST: tl.constexpr = float("-inf") if LARGEST else float("inf")
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    row, slot = item_places(items, item, there)
    best = tl.full([ROWS, EDGES, FEATURES], WORST, ACC)
    state = tl.zeros([ROWS, EDGES, FEATURES], tl.int32)
    if row_begin_ptr is not None:
        row_begin = tl.load(row_begin_ptr + row, mask=there, other=0)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        message = columns_of(x_ptr, source, live, column, X_STRIDE, WIDTH, WORST).to(ACC)
        if weight_ptr is not None:
            weight = tl.load(weight_ptr + caller_numbers(items, at, live), mask=live, other=1)
            message = weighed(message, weight[:, :, None], ADDS)
        if ROUNDS:
            message = message.to(x_ptr.dtype.element_ty).to(ACC)
        if LARGEST:
            better = message > best
        else:
            better = message < best
        if row_begin_ptr is not None or states_ptr is not None:
            if states_ptr is None:
                place = tl.minimum(at - row_begin[:, None], LAST_POSITION).to(tl.int32) + 1
                reached = tl.where(live, place, 0)[:, :, None]
            else:
                reached = columns_of(states_ptr, source, live, column, X_STRIDE, WIDTH)
            state = tl.where(better, reached, tl.where(message == best, tied(state, reached), state))
        best = tl.where(better | (message != message), message, best)
    lost = tl.max((best != best).to(tl.int32), axis=1) > 0
    if LARGEST:
        result = tl.max(tl.where(best != best, WORST, best), axis=1)
    else:
        result = tl.min(tl.where(best != best, WORST, best), axis=1)
    result = tl.where(lost, float("nan"), result)
    state = tl.where(best == result[:, None, :], state, 0)
    reached = tl.sum(edges_of(state), axis=1)
    state = tl.where(reached == 1, tl.max(state, axis=1), -reached)
    if partial_ptr is not None:
        piece = there & (slot >= 0)
        store_columns(partial_ptr, slot, piece, result, column, WIDTH)
        if partial_states_ptr is not None:
            store_columns(partial_states_ptr, slot, piece, state, column, WIDTH)
    whole = there & (slot < 0)
    store_columns(out_ptr, row, whole, tl.where((end > begin)[:, None], result, 0), column, WIDTH)
    if ties_ptr is not None:
        store_columns(ties_ptr, row, whole, saved_of(state).to(ACC), column, WIDTH)


def extremum(
    work: Work, plan: TritonPlan, call: Extremum, row_begin: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the largest or smallest message of every row; 0 for rows without edges.

    Args:
        work: The graph's items, on the device of the features.
        plan: The kernels' parameters.
        call: The call. If the result is widened, messages are not rounded to the dtype of x.
        row_begin: [rows], the first edge of every row, to also return data for the gradient; or None.

    Returns:
        [rows, F], and, with ``row_begin``, acc [rows, F]: -1 - p if only the edge at position p of the row
        equals the extremum; else the number of edges that do, and 0 if the extremum is NaN.
    """
    x, weight, widen = call.x, call.weight, call.widen
    acc = accumulator(x.dtype)
    shape = (work.rows, x.size(1))
    out = x.new_empty(shape, dtype=acc if widen else x.dtype)
    ties = None if row_begin is None else x.new_empty(shape, dtype=acc)
    if out.numel() == 0:
        return out, ties

    slots = work.slots_like(out, acc), None if row_begin is None else work.slots_like(out, torch.int32)
    for over, rows, states, filled in work.sweeps(rows_of(x), *slots):
        edge_inputs = (packed(weight), row_begin) if over is work else (None, None)
        sweep(
            extremum_kernel,
            over,
            plan,
            (rows, *edge_inputs, *states, out, ties, *filled),
            rows.size(1),
            numbered=weight is not None,
            X_STRIDE=rows.stride(0),
            LARGEST=call.reduce == "max",
            ADDS=call.adds,
            ROUNDS=edge_inputs[0] is not None and not widen,
        )
    return out, ties
