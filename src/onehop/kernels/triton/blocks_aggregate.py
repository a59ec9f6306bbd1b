"""Sum and mean on tensor cores, over the windows of a graph: see :mod:`onehop.kernels.triton.blocks`."""

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


@triton.jit
def block_sum(
    windows,
    x,
    weight,
    src_scale,
    begin,
    end,
    column,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return [16, FEATURES]: the sums over some columns of a window."""
    total = tl.zeros([16, FEATURES], tl.float32)
    for at in tl.range(begin, end, COLUMNS, num_stages=STAGES):
        place, inside, row, word, present = window_columns(windows, at, end, COLUMNS)
        value = tl.load(
            x + row[:, None] * X_STRIDE + column[None, :],
            mask=inside[:, None] & (column < WIDTH)[None, :],
            other=0.0,
        )
        factor = tl.where(present, 1.0, 0.0)
        if weight is None and src_scale is None:
            total = added(total, factor, present, value, COLUMNS)
        else:
            if weight is not None:
                number = edge_numbers(windows, place, inside, word, present)
                factor = tl.load(weight + number, mask=present, other=0.0)
            if src_scale is not None:
                scale = tl.load(src_scale + row, mask=inside, other=0.0)
                factor = tl.where(present, factor * scale[None, :], 0.0)
            total = added_precisely(total, factor, present, value, COLUMNS)
    return total


@triton.jit(do_not_specialize=["rows"])
def block_sum_kernel(
    windows,
    x,
    weight,
    src_scale,
    dst_scale,
    out,
    partial,
    rows,
    WIDTH: tl.constexpr,
    X_STRIDE: tl.constexpr,
    SPLIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes one item per program, COLUMNS of its columns at a time, for FEATURES columns of x."""
    item = tl.program_id(0)
    row, there, whole, slot, part, _filled = window_rows(windows, item, rows, SPLIT)
    begin, end = tl.load(windows.begin + item), tl.load(windows.end + item)
    column = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    total = block_sum(
        windows, x, weight, src_scale, begin, end, column, WIDTH, X_STRIDE, COLUMNS, FEATURES, STAGES
    )
    if not_numbers(total):
        total = block_sum(
            windows, x, weight, src_scale, begin, end, column, WIDTH, X_STRIDE, 1, FEATURES, STAGES
        )
    inside = (column < WIDTH)[None, :]
    if SPLIT:
        tl.store(partial + slot[:, None] * WIDTH + column[None, :], total, mask=part[:, None] & inside)
    if dst_scale is not None:
        total *= tl.load(dst_scale + row, mask=there, other=0.0)[:, None]
    tl.store(out + row[:, None] * WIDTH + column[None, :], total, mask=whole[:, None] & inside)


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
    tile = max(features(plan, width), 16)
    with on_device_of(x):
        block_sum_kernel[(blocks.items, -(-width // tile))](
            windows_of(blocks, weight is not None),
            x,
            weight,
            src_scale,
            dst_scale,
            out,
            partial,
            blocks.rows,
            WIDTH=width,
            X_STRIDE=x.stride(0),
            SPLIT=blocks.slots > 0,
            COLUMNS=columns_at_a_time(plan),
            FEATURES=tile,
            STAGES=plan.num_stages,
            **bounded(plan),
        )
        if partial is not None:
            add_slots(blocks, plan, partial, dst_scale, out)
    return out
