"""Sum and mean on tensor cores, over the windows of a graph: see :mod:`onehop.kernels.triton.blocks`."""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from onehop.kernels.triton.aggregate import add_slots
from onehop.kernels.triton.blocks import DTYPES, Blocks
from onehop.kernels.triton.blocks_parts import (
    added,
    added_precisely,
    edge_numbers,
    not_numbers,
    window_columns,
    window_rows,
)
from onehop.kernels.triton.launch import (
    accumulator,
    columns_at_a_time,
    features,
    on_device_of,
    rows_of,
    windows_of,
)
from onehop.kernels.triton.registers import bounded
from onehop.plans.triton import TritonPlan


class Given(NamedTuple):
    """Operands of :func:`aggregate`."""

    x: Tensor
    weight: Tensor | None
    src_scale: Tensor | None
    dst_scale: Tensor | None


@dataclass(frozen=True)
class WindowSumForm:
    """Compile-time constants of a sum over windows, besides dtypes.

    Attributes:
        WIDTH: Columns of x.
        X_STRIDE: Of its rows.
        SPLIT: Whether pieces of windows may be among the items.
        COLUMNS: Columns of a window that are read at a time.
        FEATURES: Columns of x of a tile.
        STAGES: Number of tiles in flight.
    """

    WIDTH: int
    X_STRIDE: int
    SPLIT: bool
    COLUMNS: int
    FEATURES: int
    STAGES: int


@triton.jit
def block_sum(windows, given, begin, end, column, COLUMNS: tl.constexpr, FORM: tl.constexpr):
    """Return [16, FEATURES]: the sums over some columns of a window."""
    total = tl.zeros([16, FORM.FEATURES], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=FORM.STAGES):
        place, inside, row, word, present = window_columns(windows, at, end, COLUMNS)
        value = tl.load(
            given.x + row[:, None] * FORM.X_STRIDE + column[None, :],
            mask=inside[:, None] & (column < FORM.WIDTH)[None, :],
            other=0.0,
        )
        factor = tl.where(present, 1.0, 0.0)
        if given.weight is None and given.src_scale is None:
            total = added(total, factor, present, value, COLUMNS)
        else:
            if given.weight is not None:
                number = edge_numbers(windows, place, inside, word, present)
                factor = tl.load(given.weight + number, mask=present, other=0.0)
            if given.src_scale is not None:
                scale = tl.load(given.src_scale + row, mask=inside, other=0.0)
                factor = tl.where(present, factor * scale[None, :], 0.0)
            total = added_precisely(total, factor, present, value, COLUMNS)
    return total


@triton.jit(do_not_specialize=["rows"])
def block_sum_kernel(windows, given, out, partial, rows, FORM: tl.constexpr):
    """Processes one item per program, COLUMNS of its columns at a time, for FEATURES columns of x."""
    item = tl.program_id(0)
    row, there, whole, slot, part, _filled = window_rows(windows, item, rows, FORM.SPLIT)
    begin, end = tl.load(windows.begin + item), tl.load(windows.end + item)
    column = tl.program_id(1) * FORM.FEATURES + tl.arange(0, FORM.FEATURES)
    total = block_sum(windows, given, begin, end, column, FORM.COLUMNS, FORM)
    if not_numbers(total):
        total = block_sum(windows, given, begin, end, column, 1, FORM)
    inside = (column < FORM.WIDTH)[None, :]
    if FORM.SPLIT:
        tl.store(partial + slot[:, None] * FORM.WIDTH + column[None, :], total, mask=part[:, None] & inside)
    if given.dst_scale is not None:
        total *= tl.load(given.dst_scale + row, mask=there, other=0.0)[:, None]
    tl.store(out + row[:, None] * FORM.WIDTH + column[None, :], total, mask=whole[:, None] & inside)


def applies(x: Tensor, weight: Tensor | None) -> bool:
    """Return whether blocks can compute a sum: 16-bit features, with at most one weight an edge.

    Tensor cores would round float32 to 11 bits.
    """
    return x.dtype in DTYPES and (weight is None or weight.dim() == 1)


def aggregate(
    blocks: Blocks,
    plan: TritonPlan,
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    widen: bool,
) -> Tensor:
    """The sum over every row's edges.

    Args:
        blocks: The graph's windows, on the device of x.
        plan: The kernels' parameters.
        x: [cols, F], of 16 bits.
        weight: float32 [E], in the caller's edge order.
        src_scale: float32 [cols].
        dst_scale: float32 [rows].
        widen: Return float32 instead of x's dtype.

    Returns:
        [rows, F].
    """
    acc, width = accumulator(x.dtype), x.size(1)
    out = x.new_empty((blocks.rows, width), dtype=acc if widen else x.dtype)
    if out.numel() == 0:
        return out
    x = rows_of(x)
    weight = None if weight is None else weight.contiguous()
    partial = x.new_empty((blocks.slots, width), dtype=acc) if blocks.slots else None
    form = WindowSumForm(
        WIDTH=width,
        X_STRIDE=x.stride(0),
        SPLIT=blocks.slots > 0,
        COLUMNS=columns_at_a_time(plan),
        FEATURES=max(features(plan, width), 16),
        STAGES=plan.num_stages,
    )
    with on_device_of(x):
        block_sum_kernel[(blocks.items, -(-width // form.FEATURES))](
            windows_of(blocks, weight is not None),
            Given(x, weight, src_scale, dst_scale),
            out,
            partial,
            rows=blocks.rows,
            FORM=form,
            **bounded(plan),
        )
        if partial is not None:
            add_slots(blocks, plan, partial, dst_scale, out)
    return out
