"""Sum, mean, max and min, and the gradients of max and min, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.kernels.cpu import generated
from onehop.kernels.cpu.layout import accumulator, address, edge_stride, rows, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan
from onehop.plans.cpu import MOST_NARROW_SOURCES

# Numbers of onehop::Reduce in csrc/include/onehop/kernels.hpp.
_SUM, _MEAN = 0, 1
_EXTREMA = {"max": 2, "min": 3}


def aggregate(
    csr: Any,
    plan: CpuPlan,
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    mean: bool,
    widen: bool,
    weight_in_graph_order: bool,
) -> Tensor:
    """Sum or mean.

    Args:
        csr: The native graph.
        plan: How to go over it.
        x: [cols, F].
        weight: [E] in the caller's edge order, of the accumulator's dtype; or [E, H], whose columns weigh
            one H-th of x's columns each.
        src_scale: [cols], contiguous, of the accumulator's dtype.
        dst_scale: [rows], likewise.
        mean: Divide by the number of edges.
        widen: Return the accumulator's dtype in place of x's.
        weight_in_graph_order: The weight is in the order of ``csr.col`` instead.

    Returns:
        [rows, F].
    """
    out = empty((csr.rows, x.shape[1]), accumulator(x.dtype) if widen else x.dtype)
    _run(
        csr, plan, _MEAN if mean else _SUM, x, weight, weight_in_graph_order, src_scale, dst_scale, out, None
    )
    return out


def extremum(
    csr: Any,
    plan: CpuPlan,
    x: Tensor,
    weight: Tensor | None,
    reduce: str,
    widen: bool,
    with_ties: bool,
    weight_in_graph_order: bool,
    adds: bool,
) -> tuple[Tensor, Tensor | None]:
    """Max or min, and, if asked for, [rows, F]: how many edges reach it (0 where it is NaN).

    With ``adds`` the weight is added to the row of x, in place of multiplying it.
    """
    acc = accumulator(x.dtype)
    shape = (csr.rows, x.size(1))
    out = empty(shape, acc if widen else x.dtype)
    ties = empty(shape, acc) if with_ties else None
    _run(csr, plan, _EXTREMA[reduce], x, weight, weight_in_graph_order, None, None, out, ties, adds)
    return out, ties


def _run(
    csr: Any,
    plan: CpuPlan,
    reduce: int,
    x: Tensor,
    weight: Tensor | None,
    weight_in_graph_order: bool,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    out: Tensor,
    ties: Tensor | None,
    adds: bool = False,
) -> None:
    narrow = plan.index == "int16"
    if narrow and csr.cols > MOST_NARROW_SOURCES:
        raise ArgumentError(
            f'plan: index="int16" can name {MOST_NARROW_SOURCES} sources, and this graph has {csr.cols}; '
            'take index="int32".'
        )
    x = rows(x)
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    columns = x.shape[1]
    width = columns // heads
    if width == 0:
        return
    x_begin, out_begin, weight_begin = address(x), out.data_ptr(), address(weight)
    x_step = out_step = weight_step = 0
    if weight is not None and heads > 1:
        x_step, out_step = width * x.element_size(), width * out.element_size()
        weight_step = weight.stride(1) * weight.element_size()
    for head in range(heads):
        extension.aggregate(
            csr,
            reduce,
            DTYPE_CODES[x.dtype],
            out.dtype is not x.dtype,
            thread_count(plan),
            plan.prefetch,
            plan.prefetch_hint == "L1",
            narrow,
            plan.edges_per_item,
            plan.column_tile,
            plan.register_block,
            plan.nontemporal,
            width,
            x_begin + head * x_step,
            x.stride()[0],
            weight_begin + head * weight_step,
            edge_stride(weight),
            weight_in_graph_order,
            adds,
            address(src_scale),
            address(dst_scale),
            out_begin + head * out_step,
            columns,
            address(ties),
            generated.address(plan.generated) if plan.generated else 0,
        )


def extremum_grad_source(
    transposed: Any,
    plan: CpuPlan,
    x: Tensor,
    weight: Tensor | None,
    extremum: Tensor,
    share: Tensor,
    adds: bool,
) -> Tensor:
    """The gradient of max or min with respect to x.

    Args:
        transposed: The native transposed graph: its rows are the sources.
        plan: How to go over it.
        x: [num_src, F].
        weight: [E] in the caller's edge order.
        extremum: [num_dst, F], the result.
        share: [num_dst, F], contiguous, of the accumulator's dtype: the gradient divided among the ties.
        adds: Whether the weight was added, in place of multiplied.

    Returns:
        [num_src, F], of the accumulator's dtype.
    """
    out = empty((transposed.rows, x.size(1)), accumulator(x.dtype))
    _run_grad(extension.extremum_grad_source, transposed, plan, x, weight, extremum, share, adds, out)
    return out


def extremum_grad_weight(
    csr: Any, plan: CpuPlan, x: Tensor, weight: Tensor, extremum: Tensor, share: Tensor, adds: bool
) -> Tensor:
    """The gradient of max or min with respect to the weights: [E], of the accumulator's dtype."""
    acc = accumulator(x.dtype)
    if x.size(1) == 0:
        return torch.zeros(csr.edges, dtype=acc, device="cpu")
    out = empty((csr.edges,), acc)
    _run_grad(extension.extremum_grad_weight, csr, plan, x, weight, extremum, share, adds, out)
    return out


def _run_grad(
    kernel: Any,
    csr: Any,
    plan: CpuPlan,
    x: Tensor,
    weight: Tensor | None,
    extremum: Tensor,
    share: Tensor,
    adds: bool,
    out: Tensor,
) -> None:
    x, extremum = rows(x), rows(extremum)
    width = x.size(1)
    if width == 0:
        return
    kernel(
        csr,
        DTYPE_CODES[x.dtype],
        extremum.dtype != x.dtype,
        thread_count(plan),
        plan.prefetch,
        plan.edges_per_item,
        width,
        address(x),
        x.stride(0),
        address(extremum),
        extremum.stride(0),
        address(share),
        address(weight),
        edge_stride(weight),
        adds,
        out.data_ptr(),
    )
