"""Sums over edges that are weighed by their two ends, on the CPU."""

from typing import Any

from torch import Tensor

from onehop.kernels.cpu.layout import address, rows, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::PairRule in csrc/include/onehop/kernels.hpp.
_RULES = {"dot": 0, "sigmoid": 1, "tdist": 2}


def fusedmm(csr: Any, plan: CpuPlan, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
    """Each edge's message times its weight, summed over each row, in one pass.

    Args:
        csr: The native graph.
        plan: How to go over it.
        dst: [rows, F].
        src: [cols, F], of the same dtype.
        rule: "dot": ``factor * x . y`` times y; "sigmoid": its sigmoid times y; "tdist":
            ``1 / (1 + factor * |x - y|^2)`` times x - y.
        factor: See there.

    Returns:
        [rows, F].
    """
    width = src.size(1)
    out = empty((csr.rows, width), src.dtype)
    if width == 0:
        return out
    left, right = rows(dst), rows(src)
    extension.fusedmm(
        csr,
        _RULES[rule],
        DTYPE_CODES[src.dtype],
        thread_count(plan),
        plan.prefetch,
        plan.edges_per_item,
        factor,
        width,
        address(left),
        left.stride(0),
        address(right),
        right.stride(0),
        out.data_ptr(),
    )
    return out
