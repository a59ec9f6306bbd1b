"""Max and min with the winner of every entry on the GPU; NaN never wins.

Winners are places of edges in the graph's own order. A lane of a tile keeps the best of its edges and that
edge's place; lanes, and the slots of split rows, are merged by value, then by place.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.item_tiles import (
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
    Items,
    accumulator,
    buckets,
    features,
    fix_up,
    items_of,
    on_device_of,
    options,
    rows_of,
    slots_of,
)
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan

# No edge has this place, for a graph has fewer edges.
BEYOND = tl.constexpr(2**31 - 1)


class Given(NamedTuple):
    """Operands of messages.

    Attributes:
        x: [cols, F]; of slots the extrema.
        weight: [E] or [E, H]; None means 1.
        winner: int32, of the layout of x: the winners of slots; None where x are features.
    """

    x: Tensor
    weight: Tensor | None
    winner: Tensor | None


class Results(NamedTuple):
    """Tensors for extrema and winners.

    Attributes:
        out: [rows, F].
        winner: int32 [rows, F].
        partial: [slots, F], the extrema of pieces of split rows; None where none is split.
        partial_winner: Likewise, their winners.
    """

    out: Tensor
    winner: Tensor
    partial: Tensor | None
    partial_winner: Tensor | None


@dataclass(frozen=True)
class ArgExtremumForm:
    """Compile-time constants, besides dtypes.

    Attributes:
        WIDTH: Columns of x.
        X_STRIDE: Of its rows.
        HEADS: Columns of the weight.
        LARGEST: Max if true; else min.
        LAST: Whether the last of the edges that tie wins, else the first.
        SPLIT: Whether pieces of rows may be among the items.
        ROWS: Items of a tile.
        EDGES: Edges of each item that are read at a time.
        FEATURES: Columns of a tile.
        STAGES: Number of tiles in flight.
    """

    WIDTH: int
    X_STRIDE: int
    HEADS: int
    LARGEST: bool
    LAST: bool
    SPLIT: bool
    ROWS: int
    EDGES: int
    FEATURES: int
    STAGES: int


@triton.jit(do_not_specialize=["first", "count"])
def arg_extremum_kernel(items, given, results, first, count, FORM: tl.constexpr):
    """A tile [ROWS, EDGES, FEATURES] iterates over the edges of ROWS items, EDGES of each at a time."""
    ACC: tl.constexpr = tl.float64 if given.x.dtype.element_ty == tl.float64 else tl.float32
    WORST: tl.constexpr = float("-inf") if FORM.LARGEST else float("inf")
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, FORM.ROWS)
    row, slot = item_rows(items, item, there, FORM.SPLIT)
    column = tl.program_id(1) * FORM.FEATURES + tl.arange(0, FORM.FEATURES)
    best = tl.full([FORM.ROWS, FORM.EDGES, FORM.FEATURES], WORST, ACC)
    winner = tl.full([FORM.ROWS, FORM.EDGES, FORM.FEATURES], -1, tl.int32)
    for step in tl.range(0, longest, FORM.EDGES, num_stages=FORM.STAGES):
        at, live = next_edges(begin, end, step, FORM.EDGES)
        source = other_ends(items, at, live)
        message = columns_of(given.x, source, live, column, FORM.X_STRIDE, FORM.WIDTH, WORST).to(ACC)
        if given.weight is not None:
            message *= edge_weights(items, given.weight, at, live, column, FORM.WIDTH, FORM.HEADS)
        if given.winner is not None:
            place = columns_of(given.winner, source, live, column, FORM.WIDTH, FORM.WIDTH, -1)
        else:
            place = tl.where(live, at, -1).to(tl.int32)[:, :, None]
        if FORM.LARGEST:
            better = (message >= best) if FORM.LAST else (message > best)
        else:
            better = (message <= best) if FORM.LAST else (message < best)
        # Slots in which nothing won must not win by their infinity.
        better &= place >= 0
        best = tl.where(better, message, best)
        winner = tl.where(better, place, winner)
    if FORM.LARGEST:
        result = tl.max(best, axis=1)
    else:
        result = tl.min(best, axis=1)
    wins = (best == result[:, None, :]) & (winner >= 0)
    if FORM.LAST:
        place = tl.max(tl.where(wins, winner, -1), axis=1)
    else:
        place = tl.min(tl.where(wins, winner, BEYOND), axis=1)
        place = tl.where(place == BEYOND, -1, place)
    if FORM.SPLIT:
        piece = there & (slot >= 0)
        store_columns(results.partial, slot, piece, result, column, FORM.WIDTH)
        store_columns(results.partial_winner, slot, piece, place, column, FORM.WIDTH)
    whole = there & (slot < 0)
    store_columns(results.out, row, whole, result, column, FORM.WIDTH)
    store_columns(results.winner, row, whole, place, column, FORM.WIDTH)


class Choices(NamedTuple):
    """Rules by which an edge wins.

    Attributes:
        largest: Max if true; else min.
        last: Whether the last of the edges that tie wins, else the first.
    """

    largest: bool
    last: bool


def arg_extremum(
    work: Work, plan: TritonPlan, x: Tensor, weight: Tensor | None, choices: Choices
) -> tuple[Tensor, Tensor]:
    """The largest or smallest message of every row, and its edge.

    Args:
        work: The graph's items, on the device of x.
        plan: The kernels' parameters.
        x: [cols, F], float32 or float64.
        weight: [E] or [E, H] in the caller's edge order, of the dtype of x; None means 1.
        choices: Which edge wins.

    Returns:
        [rows, F], infinite where nothing wins; and int32 [rows, F], the winner's place in the graph's own
        edge order, -1 where nothing wins.
    """
    width = x.size(1)
    out = x.new_empty((work.rows, width))
    winner = torch.empty_like(out, dtype=torch.int32)
    if out.numel() == 0:
        return out, winner
    x = rows_of(x)
    weight = None if weight is None else weight.contiguous()
    partial = partial_winner = None
    if work.slots:
        partial = x.new_empty((work.slots, width), dtype=accumulator(x.dtype))
        partial_winner = torch.empty_like(partial, dtype=torch.int32)
    with on_device_of(x):
        given, results = Given(x, weight, None), Results(out, winner, partial, partial_winner)
        for bucket in buckets(work, plan):
            _launch(plan, bucket, items_of(work, weight is not None), given, results, choices)
        for merge in work.merges:
            assert partial is not None
            given = Given(partial, None, partial_winner)
            partial, partial_winner = merge.next_slots(partial), merge.next_slots(partial_winner)
            results = Results(out, winner, partial, partial_winner)
            _launch(plan, fix_up(merge, plan), slots_of(merge), given, results, choices)
    return out, winner


def _launch(
    plan: TritonPlan, bucket: Bucket, items: Items, given: Given, results: Results, choices: Choices
) -> None:
    width = given.x.size(1)
    tile = features(plan, width)
    form = ArgExtremumForm(
        WIDTH=width,
        X_STRIDE=given.x.stride(0),
        HEADS=heads_of(given.weight),
        LARGEST=choices.largest,
        LAST=choices.last,
        SPLIT=bucket.split,
        ROWS=bucket.rows,
        EDGES=bucket.edges,
        FEATURES=tile,
        STAGES=plan.num_stages,
    )
    numbers: dict[str, Any] = {"first": bucket.first, "count": bucket.count}
    arg_extremum_kernel[(bucket.programs, -(-width // tile))](
        items, given, results, **numbers, FORM=form, **options(plan)
    )


def heads_of(weight: Tensor | None) -> int:
    """Number of a weight's columns."""
    return 1 if weight is None or weight.dim() == 1 else weight.size(1)
