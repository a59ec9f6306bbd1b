"""Dot products for every edge: ``onehop::sddmm``."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops import linear
from onehop.ops.library import Function, Operator, keep_alive, needs_grad

SCHEMA = (
    "sddmm(Tensor dst, Tensor src, SymInt graph, SymInt edges, bool mean, bool widen, str backend) -> Tensor"
)


def edge_dots(
    rows: Tensor,
    cols: Tensor,
    heads: int,
    number: int,
    edges: int,
    transposed: bool,
    mean: bool,
    backend: str,
) -> Tensor:
    """[E, heads]: rows[r(e)] . cols[c(e)] for the rows and columns of a graph or of its transpose.

    Each head's dot product is taken over its part of the columns; see SDDMM.
    """
    dst, src = (cols, rows) if transposed else (rows, cols)
    if dst.dtype != src.dtype:
        dtype = torch.promote_types(dst.dtype, src.dtype)
        dst, src = dst.to(dtype), src.to(dtype)
    shape = (heads, dst.size(1) // heads)
    dst, src = dst.reshape(dst.size(0), *shape), src.reshape(src.size(0), *shape)
    out: Tensor = SDDMM(dst, src, number, edges, mean, True, backend)
    return out


def _kernel(
    dst: Tensor, src: Tensor, graph: int, edges: int, mean: bool, widen: bool, backend: str
) -> Tensor:
    return backend_for(src.device, src.dtype, backend).sddmm(by_number(graph), dst, src, mean, widen)


def _fake(dst: Tensor, src: Tensor, graph: int, edges: int, mean: bool, widen: bool, backend: str) -> Tensor:
    dtype = torch.float32 if widen and src.dtype != torch.float64 else src.dtype
    return src.new_empty((edges, src.size(1)), dtype=dtype)


class _Recorded(Function):
    @staticmethod
    def forward(
        ctx: Any, dst: Tensor, src: Tensor, graph: int, edges: int, mean: bool, widen: bool, backend: str
    ) -> Tensor:
        ctx.save_for_backward(dst, src)
        ctx.number, ctx.mean, ctx.backend = graph, mean, backend
        ctx.graph = keep_alive(graph)
        out: Tensor = SDDMM.unrecorded(dst, src, graph, edges, mean, widen, backend)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        dst, src = ctx.saved_tensors
        grads: list[Tensor | None] = [None, None]
        for side, (own, other, transposed) in enumerate(((dst, src, False), (src, dst, True))):
            if ctx.needs_input_grad[side]:
                if own.size(1):
                    summed = _weighted_sum(other.flatten(1), grad, own.size(0), transposed, ctx)
                    grads[side] = summed.view(own.shape).to(own.dtype)
                else:
                    grads[side] = torch.zeros_like(own)
        return (*grads, None, None, None, None, None)


def _weighted_sum(x: Tensor, weight: Tensor, rows: int, transposed: bool, ctx: Any) -> Tensor:
    accumulator = torch.float64 if x.dtype == torch.float64 else torch.float32
    out: Tensor = linear.AGGREGATE(
        x, weight.to(accumulator), None, None, ctx.number, rows, transposed, ctx.mean, True, ctx.backend
    )
    return out


def _record(dst: Tensor, src: Tensor, *rest: Any) -> Tensor | None:
    if not needs_grad(dst, src):
        return None
    recorded: Tensor = _Recorded.apply(dst, src, *rest)
    return recorded


SDDMM = Operator(SCHEMA, _kernel, _fake, _record)
"""(dst [num_dst, H, F], src [num_src, H, F], graph number, edges, mean, widen, backend) -> [E, H]

With ``mean``, each product is divided by the number of edges of its destination.
"""
