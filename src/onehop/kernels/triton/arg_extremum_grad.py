"""The gradient of max and min that goes to the winners alone, on the GPU.

To x it is a sweep over the transposed graph: of every edge the winners of its destination are read, and the
gradient only where the edge is the winner. So nothing is atomic, as it would be in a sweep over winners.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.arg_extremum import heads_of
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    columns_of,
    edge_weights,
    item_rows,
    next_edges,
    other_ends,
    store_columns,
    tile_items,
)
from onehop.kernels.triton.launch import (
    Bucket,
    buckets,
    features,
    items_of,
    on_device_of,
    options,
    rows_of,
)
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan


class Given(NamedTuple):
    """Operands of both gradients.

    Attributes:
        grad: [num_dst, F].
        winner: int32 [num_dst, F], places of edges in the graph's own order; -1 where nothing won.
        x: [num_src, F]; None for the gradient to it, which does not depend on it.
        weight: [E] or [E, H]; None means 1, or that the gradient to it is made.
        place: int32 [E], in the order of the transposed graph: places of edges in the graph's own order.
            None where edges are taken in that order.
    """

    grad: Tensor
    winner: Tensor
    x: Tensor | None
    weight: Tensor | None
    place: Tensor | None


@dataclass(frozen=True)
class ArgExtremumGradForm:
    """Compile-time constants, besides dtypes.

    Attributes:
        WIDTH: Columns of x.
        X_STRIDE: Of its rows; 0 without x.
        GRAD_STRIDE: Of the gradient's.
        HEADS: Columns of the weight.
        SPLIT: Whether pieces of rows may be among the items.
        ROWS: Items of a tile.
        EDGES: Edges of each item that are read at a time.
        FEATURES: Columns of a tile.
        STAGES: Number of tiles in flight.
    """

    WIDTH: int
    X_STRIDE: int
    GRAD_STRIDE: int
    HEADS: int
    SPLIT: bool
    ROWS: int
    EDGES: int
    FEATURES: int
    STAGES: int


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_grad_source_kernel(items, given, out, partial, first, count, FORM: tl.constexpr):
    """Processes rows that are sources: each adds up the gradients of entries that its edges won."""
    ACC: tl.constexpr = tl.float64 if given.grad.dtype.element_ty == tl.float64 else tl.float32
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row, slot = item_rows(items, item, there, FORM.SPLIT)
    column = tl.program_id(1) * FORM.FEATURES + tl.arange(0, FORM.FEATURES)
    total = tl.zeros([FORM.ROWS, FORM.EDGES, FORM.FEATURES], ACC)
    for step in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, live = next_edges(begin, end, step, FORM.EDGES)
        target = other_ends(items, at, live)
        winner = columns_of(given.winner, target, live, column, FORM.WIDTH, FORM.WIDTH, -1)
        # No winner is -2.
        place = tl.load(given.place + at, mask=live, other=-2)[:, :, None]
        hit = winner == place
        where = given.grad + target[:, :, None] * FORM.GRAD_STRIDE + column[None, None, :]
        part = tl.load(where, mask=hit, other=0).to(ACC)
        if given.weight is not None:
            part *= edge_weights(items, given.weight, at, live, column, FORM.WIDTH, FORM.HEADS)
            # An edge that did not win passes nothing on, though its weight be infinite.
            part = tl.where(hit, part, 0)
        total += part
    result = tl.sum(total, axis=1)
    if FORM.SPLIT:
        store_columns(partial, slot, there & (slot >= 0), result, column, FORM.WIDTH)
    store_columns(out, row, there & (slot < 0), result, column, FORM.WIDTH)


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_grad_weight_kernel(items, given, out, first, count, FORM: tl.constexpr):
    """Processes rows that are destinations: every edge adds up what it won, over the columns of a head."""
    ACC: tl.constexpr = tl.float64 if given.grad.dtype.element_ty == tl.float64 else tl.float32
    PART: tl.constexpr = FORM.WIDTH // FORM.HEADS
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row, _ = item_rows(items, item, there, False)
    for step in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, live = next_edges(begin, end, step, FORM.EDGES)
        source = other_ends(items, at, live)
        number = caller_numbers(items, at, live)
        for head in range(0, FORM.HEADS):
            total = tl.zeros([FORM.ROWS, FORM.EDGES, FORM.FEATURES], ACC)
            for ahead in range(0, PART, FORM.FEATURES):
                inner = ahead + tl.arange(0, FORM.FEATURES)
                column = head * PART + inner
                own = there[:, None] & (inner < PART)[None, :]
                winner = tl.load(given.winner + row[:, None] * FORM.WIDTH + column[None, :], own, other=-1)
                hit = live[:, :, None] & (winner[:, None, :] == at[:, :, None])
                where = given.grad + row[:, None] * FORM.GRAD_STRIDE + column[None, :]
                grad = tl.load(where, mask=own, other=0).to(ACC)
                where = given.x + source[:, :, None] * FORM.X_STRIDE + column[None, None, :]
                value = tl.load(where, mask=hit, other=0).to(ACC)
                total += tl.where(hit, value * grad[:, None, :], 0)
            tl.store(out + number * FORM.HEADS + head, tl.sum(total, axis=2), mask=live)


def arg_extremum_grad_source(
    work: Work, plan: TritonPlan, weight: Tensor | None, winner: Tensor, grad: Tensor, place: Tensor
) -> Tensor:
    """The gradient to x, [num_src, F].

    Args:
        work: Work of the transposed graph.
        plan: The kernels' parameters.
        weight: [E] or [E, H] in the caller's edge order; None means 1.
        winner: int32 [num_dst, F], places of edges in the graph's own order.
        grad: [num_dst, F].
        place: int32 [E], in the order of the transposed graph: such places.
    """
    width = winner.size(1)
    out = grad.new_empty((work.rows, width))
    if out.numel() == 0:
        return out
    partial = grad.new_empty((work.slots, width)) if work.slots else None
    weight = None if weight is None else weight.contiguous()
    given = Given(rows_of(grad), winner, None, weight, place)
    tile = features(plan, width)
    with on_device_of(grad):
        for bucket in buckets(work, plan):
            arg_extremum_grad_source_kernel[(bucket.programs, -(-width // tile))](
                items_of(work, weight is not None),
                given,
                out,
                partial,
                **_numbers(bucket),
                FORM=_form(plan, bucket, given, heads_of(weight), tile),
                **options(plan),
            )
        if partial is not None:
            add_slots(work, plan, partial, None, out)
    return out


def arg_extremum_grad_weight(
    work: Work, plan: TritonPlan, x: Tensor, weight: Tensor, winner: Tensor, grad: Tensor
) -> Tensor:
    """The gradient to the weight, of its shape; ``work`` is of the graph itself."""
    width, heads = x.size(1), heads_of(weight)
    if width == 0 or work.edges == 0:
        return weight.new_zeros(weight.shape)
    out = weight.new_empty(weight.shape)
    given = Given(rows_of(grad), winner, rows_of(x), None, None)
    tile = features(plan, width // heads)
    with on_device_of(x):
        for bucket in buckets(work, plan):
            arg_extremum_grad_weight_kernel[(bucket.programs,)](
                items_of(work),
                given,
                out,
                **_numbers(bucket),
                FORM=_form(plan, bucket, given, heads, tile),
                **options(plan),
            )
    return out


def _numbers(bucket: Bucket) -> dict[str, Any]:
    return {"first": bucket.first, "count": bucket.count}


def _form(plan: TritonPlan, bucket: Bucket, given: Given, heads: int, tile: int) -> ArgExtremumGradForm:
    return ArgExtremumGradForm(
        WIDTH=given.winner.size(1),
        X_STRIDE=0 if given.x is None else given.x.stride(0),
        GRAD_STRIDE=given.grad.stride(0),
        HEADS=heads,
        SPLIT=bucket.split,
        ROWS=bucket.rows,
        EDGES=bucket.edges,
        FEATURES=tile,
        STAGES=plan.num_stages,
    )
