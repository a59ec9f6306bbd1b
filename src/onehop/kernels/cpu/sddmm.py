"""A dot product for every edge, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.kernels.cpu.layout import accumulator, address, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan


def sddmm(csr: Any, plan: CpuPlan, dst: Tensor, src: Tensor, widen: bool) -> Tensor:
    """Dot products of the destinations' and the sources' rows.

    Args:
        csr: The native graph.
        plan: How to go over it.
        dst: [rows, H, F].
        src: [cols, H, F], of the same dtype.
        widen: Return the accumulator's dtype in place of the operands'.

    Returns:
        [E, H], in the caller's edge order.
    """
    heads, width = src.size(1), src.size(2)
    dtype = accumulator(src.dtype) if widen else src.dtype
    if width == 0:
        return torch.zeros((csr.edges, heads), dtype=dtype, device="cpu")
    out = empty((csr.edges, heads), dtype)
    left, right = _heads(dst), _heads(src)
    for head in range(heads):
        extension.sddmm(
            csr,
            DTYPE_CODES[src.dtype],
            widen and out.dtype != src.dtype,
            thread_count(plan),
            plan.prefetch,
            plan.edges_per_item,
            width,
            address(left) + head * left.stride(1) * left.element_size(),
            left.stride(0),
            address(right) + head * right.stride(1) * right.element_size(),
            right.stride(0),
            out.data_ptr() + head * out.element_size(),
            heads,
        )
    return out


def _heads(x: Tensor) -> Tensor:
    """``x``, [N, H, F], with the columns of each head side by side."""
    return x if x.stride(2) == 1 or x.size(2) == 1 else x.contiguous()
