"""Softmax over the edges of every row, on the CPU."""

from typing import Any

from torch import Tensor

from onehop.kernels.cpu.layout import address, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan


def edge_softmax(csr: Any, plan: CpuPlan, scores: Tensor) -> Tensor:
    """Softmax over every row's edges.

    Args:
        csr: The native graph.
        plan: How to go over it.
        scores: [E, H] in the caller's edge order.

    Returns:
        [E, H], of the dtype of ``scores``; computed in the accumulator's.
    """
    scores = scores.contiguous()
    out = empty(scores.shape, scores.dtype)
    heads = scores.size(1)
    if heads:
        extension.edge_softmax(
            csr,
            DTYPE_CODES[scores.dtype],
            thread_count(plan),
            plan.edges_per_item,
            heads,
            address(scores),
            out.data_ptr(),
        )
    return out


def edge_softmax_grad(csr: Any, plan: CpuPlan, softmax: Tensor, grad: Tensor) -> Tensor:
    """The gradient to the scores: ``a * (g - sum of a * g over the row)``.

    Args:
        csr: The native graph.
        plan: How to go over it.
        softmax: [E, H], the result a.
        grad: [E, H], the gradient g, of the same dtype.

    Returns:
        [E, H], of that dtype.
    """
    softmax, grad = softmax.contiguous(), grad.contiguous()
    out = empty(softmax.shape, softmax.dtype)
    heads = softmax.size(1)
    if heads:
        extension.edge_softmax_grad(
            csr,
            DTYPE_CODES[softmax.dtype],
            thread_count(plan),
            plan.edges_per_item,
            heads,
            address(softmax),
            address(grad),
            out.data_ptr(),
        )
    return out
