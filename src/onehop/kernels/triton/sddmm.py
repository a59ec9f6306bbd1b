"""Dot products, or squared distances, of the two ends of every edge, on the GPU."""

import triton
import triton.language as tl
from torch import Tensor

from onehop.calls import Sddmm, accumulator
from onehop.kernels.triton.item_tiles import (
    caller_numbers,
    item_rows,
    next_edges,
    other_ends,
    tile_items,
)
from onehop.kernels.triton.launch import features, sweep
from onehop.kernels.triton.work import Work
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two


@triton.jit(do_not_specialize=["first", "count"])
def sddmm_kernel(
    items,
    dst_ptr,
    src_ptr,
    dst_scale_ptr,
    out_ptr,
    first,
    count,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    DST_STRIDE: tl.constexpr,
    SRC_STRIDE: tl.constexpr,
    DISTANCE: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    PARTS: tl.constexpr,
    FEATURES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Processes tiles [ROWS, EDGES, PARTS, FEATURES]: PARTS heads of some edges, group by group.

    The row of the destination is read once, before the loop, if a tile has all columns of a head.
    """
    ACC: tl.constexpr = tl.float64 if src_ptr.dtype.element_ty == tl.float64 else tl.float32
    WHOLE: tl.constexpr = WIDTH <= FEATURES
    item, there, begin, end, longest = tile_items(items, tl.program_id(0), first, count, ROWS)
    row = item_rows(items, item, there)
    # Heads and columns are contiguous in memory and in a tile, for loads of 16 bytes.
    place = tl.arange(0, PARTS * FEATURES)
    part = tl.program_id(1) * PARTS + place // FEATURES
    column = place % FEATURES
    offset = part * WIDTH + column
    inside = (part < HEADS) & (column < WIDTH)
    if WHOLE:
        dst = tl.load(
            dst_ptr + row[:, None] * DST_STRIDE + offset[None, :],
            mask=there[:, None] & inside[None, :],
            other=0,
        ).to(ACC)
    if dst_scale_ptr is not None:
        scale = tl.load(dst_scale_ptr + row, mask=there, other=0)
    head = tl.program_id(1) * PARTS + tl.arange(0, PARTS)
    for step in tl.range(0, longest, EDGES, num_stages=STAGES):
        at, live = next_edges(begin, end, step, EDGES)
        source = other_ends(items, at, live)[:, :, None]
        total = tl.zeros([ROWS, EDGES, PARTS * FEATURES], ACC)
        for ahead in range(0, WIDTH, FEATURES):
            rest = inside & (column + ahead < WIDTH)
            if not WHOLE:
                dst = tl.load(
                    dst_ptr + row[:, None] * DST_STRIDE + (offset + ahead)[None, :],
                    mask=there[:, None] & rest[None, :],
                    other=0,
                ).to(ACC)
            other = tl.load(
                src_ptr + source * SRC_STRIDE + (offset + ahead)[None, None, :],
                mask=live[:, :, None] & rest[None, None, :],
                other=0,
            ).to(ACC)
            if DISTANCE:
                total += (dst[:, None, :] - other) * (dst[:, None, :] - other)
            else:
                total += dst[:, None, :] * other
        result = tl.sum(tl.reshape(total, [ROWS, EDGES, PARTS, FEATURES]), axis=3)
        if dst_scale_ptr is not None:
            result *= scale[:, None, None]
        number = caller_numbers(items, at, live)[:, :, None] * HEADS + head[None, None, :]
        tl.store(out_ptr + number, result, mask=live[:, :, None] & (head < HEADS)[None, None, :])


def sddmm(
    work: Work, plan: TritonPlan, call: Sddmm, dst_scale: Tensor | None, distance: bool = False
) -> Tensor:
    """Compute a dot product for every edge and head.

    Args:
        work: The graph's items, on the device of the features.
        plan: The kernels' parameters.
        call: The call; a mean's division must be in ``dst_scale``.
        dst_scale: acc [num_dst], the factor of the products of a destination's edges; None means 1.
        distance: Whether to compute squared distances instead of products.

    Returns:
        [E, H], in the caller's edge order.
    """
    src = call.src
    heads, width = src.size(1), src.size(2)
    out = src.new_empty((work.edges, heads), dtype=accumulator(src.dtype) if call.widen else src.dtype)
    if out.numel() == 0 or width == 0:
        return out.zero_()
    dst, src = _whole_rows(call.dst), _whole_rows(src)
    parts = min(power_of_two(heads), max(plan.block_features // features(plan, width), 1))
    sweep(
        sddmm_kernel,
        work,
        plan,
        (dst, src, dst_scale, out),
        width,
        tiles=-(-heads // parts),
        HEADS=heads,
        DST_STRIDE=dst.stride(0),
        SRC_STRIDE=src.stride(0),
        DISTANCE=distance,
        PARTS=parts,
    )
    return out


def _whole_rows(x: Tensor) -> Tensor:
    """Return x, [N, H, F], with contiguous heads and columns; rows may be strided."""
    whole = (x.stride(2) == 1 or x.size(2) <= 1) and (x.stride(1) == x.size(2) or x.size(1) <= 1)
    return x if whole else x.contiguous()
