"""Max and min with the winner of every entry, and the gradient that goes to the winners, on the CPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.kernels.cpu.layout import address, edge_stride, rows, thread_count
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan


def arg_extremum(
    csr: Any, plan: CpuPlan, x: Tensor, weight: Tensor | None, minimum: bool, last: bool
) -> tuple[Tensor, Tensor]:
    """The extrema [rows, F], of x's dtype, and the winners' places in the order of ``csr.col``, int32.

    Args:
        csr: The native graph, of fewer than 2^31 edges.
        plan: How to go over it.
        x: [cols, F], float32 or float64.
        weight: [E] in the caller's edge order, of the same dtype; or [E, H], whose columns weigh one H-th of
            x's columns each.
        minimum: Min in place of max.
        last: Of the edges that tie the last one wins, else the first.
    """
    x = rows(x)
    out = empty((csr.rows, x.size(1)), x.dtype)
    winner = empty((csr.rows, x.size(1)), torch.float32).view(torch.int32)  # the pool has floats alone
    for head, columns in _heads(weight, x.size(1)):
        extension.arg_extremum(
            csr,
            DTYPE_CODES[x.dtype],
            minimum,
            last,
            thread_count(plan),
            plan.prefetch,
            plan.edges_per_item,
            columns.stop - columns.start,
            address(x[:, columns]),
            x.stride(0),
            *_place(weight, head),
            out[:, columns].data_ptr(),
            out.stride(0),
            winner[:, columns].data_ptr(),
            winner.stride(0),
        )
    return out, winner


def arg_extremum_grad_source(
    csr: Any, plan: CpuPlan, grad: Tensor, x: Tensor, weight: Tensor | None, winner: Tensor
) -> Tensor:
    """The gradient to x, [cols, F]."""
    out = empty((csr.cols, x.size(1)), x.dtype).zero_()
    for head, columns in _heads(weight, x.size(1)):
        _add(
            extension.arg_extremum_grad_source, csr, plan, grad, x, weight, winner, head, columns,
            out[:, columns].data_ptr(), out.stride(0),
        )  # fmt: skip
    return out


def arg_extremum_grad_weight(
    csr: Any, plan: CpuPlan, grad: Tensor, x: Tensor, weight: Tensor, winner: Tensor
) -> Tensor:
    """The gradient to the weight, of its shape."""
    out = torch.zeros(weight.shape, dtype=weight.dtype, device="cpu")
    for head, columns in _heads(weight, x.size(1)):
        _add(
            extension.arg_extremum_grad_weight, csr, plan, grad, x, weight, winner, head, columns,
            *_place(out, head),
        )  # fmt: skip
    return out


def _add(
    kernel: Callable[..., None],
    csr: Any,
    plan: CpuPlan,
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    winner: Tensor,
    head: int,
    columns: slice,
    out: int,
    out_stride: int,
) -> None:
    x, grad = rows(x), rows(grad)
    kernel(
        csr,
        DTYPE_CODES[x.dtype],
        thread_count(plan),
        columns.stop - columns.start,
        address(grad[:, columns]),
        grad.stride(0),
        address(winner[:, columns]),
        winner.stride(0),
        address(x[:, columns]),
        x.stride(0),
        *_place(weight, head),
        out,
        out_stride,
    )


def _heads(weight: Tensor | None, columns: int) -> list[tuple[int, slice]]:
    """The heads, and their columns."""
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    width = columns // heads
    return [(head, slice(head * width, (head + 1) * width)) for head in range(heads if width else 0)]


def _place(of_edges: Tensor | None, head: int) -> tuple[int, int]:
    """Where a head's entries begin, and how far apart they are."""
    if of_edges is not None and of_edges.dim() == 2:
        of_edges = of_edges[:, head]
    return address(of_edges), edge_stride(of_edges)
