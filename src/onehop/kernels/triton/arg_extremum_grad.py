"""The gradient of max and min that goes only to the winners, on the GPU.

The gradient to x is a sweep over the transposed graph: for every edge, the winners of its destination are
read, and the gradient is read only if the edge is the winner. So no atomic operations are needed, in contrast
to a sweep over the winners.
"""

import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import ArgExtremumGrad, heads_of
from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
    edge_weights,
    item_places,
    item_rows,
    next_edges,
    other_ends,
    store_results,
    tile_items,
)
from onehop.kernels.triton.launch import packed, rows_of, sweep
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_grad_source_kernel(
    items,
    grad_ptr,
    winner_ptr,
    place_ptr,
    weight_ptr,
    out_ptr,
    partial_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    GRAD_STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes rows that are sources: each adds up the gradients of entries that its edges won.

    ``place_ptr`` has the edges' positions in the graph's own order, in the order of the rows here.
    """
    ACC: tl.constexpr = tl.float64 if grad_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row, slot = item_places(items, item, there)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        target = other_ends(items, at, live)
        winner = columns_of(winner_ptr, target, live, column, WIDTH, WIDTH, -1)
        # No winner has the number -2.
        place = tl.load(place_ptr + at, mask=live, other=-2)[:, :, None]
        hit = winner == place
        where = grad_ptr + target[:, :, None] * GRAD_STRIDE + column[None, None, :]
        part = tl.load(where, mask=hit, other=0).to(ACC)
        if weight_ptr is not None:
            part *= edge_weights(items, weight_ptr, at, live, column, WIDTH, HEADS)
            # An edge that did not win gets no gradient, even if its weight is infinite.
            part = tl.where(hit, part, 0)
        total += part
    store_results(out_ptr, partial_ptr, row, slot, there, tl.sum(total, axis=1), column, WIDTH)


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_grad_weight_kernel(
    items,
    grad_ptr,
    winner_ptr,
    x_ptr,
    out_ptr,
    first,
    count,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    GRAD_STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes rows that are destinations: every edge adds up the entries that it won, for each head.

    A head has WIDTH columns.
    """
    ACC: tl.constexpr = tl.float64 if grad_ptr.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row = item_rows(items, item, there)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)
        number = caller_numbers(items, at, live)
        for head in range(0, HEADS):
            total = tl.zeros([ROWS, EDGES, FEATURES], ACC)
            for ahead in range(0, WIDTH, FEATURES):
                inner = ahead + tl.arange(0, FEATURES)
                column = head * WIDTH + inner
                won = there[:, None] & (inner < WIDTH)[None, :]
                winner = tl.load(winner_ptr + row[:, None] * (HEADS * WIDTH) + column[None, :], won, other=-1)
                hit = live[:, :, None] & (winner[:, None, :] == at[:, :, None])
                where = grad_ptr + row[:, None] * GRAD_STRIDE + column[None, :]
                grad = tl.load(where, mask=won, other=0).to(ACC)
                where = x_ptr + source[:, :, None] * X_STRIDE + column[None, None, :]
                value = tl.load(where, mask=hit, other=0).to(ACC)
                total += tl.where(hit, value * grad[:, None, :], 0)
            tl.store(out_ptr + number * HEADS + head, tl.sum(total, axis=2), mask=live)


def arg_extremum_grad_source(work: Work, plan: TritonPlan, call: ArgExtremumGrad, place: Tensor) -> Tensor:
    """Return the gradient to x, [num_src, F].

    Args:
        work: The work of the transposed graph.
        plan: The kernels' parameters.
        call: The call.
        place: int32 [E], in the order of the transposed graph: the edges' positions in the graph's own order.
    """
    winner, weight, width = call.winner, call.call.weight, call.winner.size(1)
    out = call.grad.new_empty((work.rows, width))
    if out.numel() == 0:
        return out
    grad, partial = rows_of(call.grad), work.slots_like(out, out.dtype)
    sweep(
        arg_extremum_grad_source_kernel,
        work,
        plan,
        (grad, winner, place, packed(weight), out, partial),
        width,
        numbered=weight is not None,
        GRAD_STRIDE=grad.stride(0),
        HEADS=heads_of(weight),
    )
    add_slots(work, plan, partial, None, out)
    return out


def arg_extremum_grad_weight(work: Work, plan: TritonPlan, call: ArgExtremumGrad, weight: Tensor) -> Tensor:
    """Return the gradient to the weight, of its shape; ``work`` is of the graph itself."""
    heads, out = heads_of(weight), weight.new_empty(weight.shape)
    grad, x = rows_of(call.grad), rows_of(call.call.x)
    if x.size(1) == 0 or work.edges == 0:
        return out.zero_()
    sweep(
        arg_extremum_grad_weight_kernel,
        work,
        plan,
        (grad, call.winner, x, out),
        x.size(1) // heads,
        tiles=1,
        X_STRIDE=x.stride(0),
        GRAD_STRIDE=grad.stride(0),
        HEADS=heads,
    )
    return out
