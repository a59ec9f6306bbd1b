"""Sums over edges that are weighed by their two ends: ``onehop::fusedmm``.

Forward, everything happens in one pass, and nothing is kept for edges. Backward, the weights are computed
once more from products and sums that have derivatives of their own: some numbers an edge, nothing of edges
times width.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops import dots, linear
from onehop.ops.library import Function, Operator, keep_alive, needs_grad

SCHEMA = (
    "fusedmm(Tensor dst, Tensor src, SymInt graph, SymInt edges, str rule, float factor, str backend) "
    "-> Tensor"
)


def _kernel(
    dst: Tensor, src: Tensor, graph: int, edges: int, rule: str, factor: float, backend: str
) -> Tensor:
    return backend_for(src.device, src.dtype, backend).fusedmm(by_number(graph), dst, src, rule, factor)


def _fake(dst: Tensor, src: Tensor, graph: int, edges: int, rule: str, factor: float, backend: str) -> Tensor:
    return dst.new_empty(dst.shape)


class _Recorded(Function):
    @staticmethod
    def forward(
        ctx: Any, dst: Tensor, src: Tensor, graph: int, edges: int, rule: str, factor: float, backend: str
    ) -> Tensor:
        ctx.save_for_backward(dst, src)
        ctx.rest = (graph, edges, rule, factor, backend)
        ctx.graph = keep_alive(graph)
        out: Tensor = FUSEDMM.unrecorded(dst, src, *ctx.rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        further = torch.is_grad_enabled()
        needed = ctx.needs_input_grad[:2]
        with torch.enable_grad():
            # Of one end each, though the same tensor may have been given twice. Views, for
            # torch.vmap allows no new leaves.
            ends = [t.view_as(t) for t in ctx.saved_tensors]
            out = _in_parts(ends[0], ends[1], *ctx.rest)
            wanted = [end for end, need in zip(ends, needed, strict=True) if need]
            found = iter(torch.autograd.grad(out, wanted, grad, create_graph=further))
        return (*(next(found) if need else None for need in needed), None, None, None, None, None)


def _in_parts(
    dst: Tensor, src: Tensor, graph: int, edges: int, rule: str, factor: float, backend: str
) -> Tensor:
    """The same, of operators that have derivatives."""
    rest = (None, None, graph, dst.size(0), False, False)
    if rule != "tdist":
        weight = factor * _dots(dst, src, graph, edges, backend)
        if rule == "sigmoid":
            weight = weight.sigmoid()
        out: Tensor = linear.AGGREGATE(src, weight, *rest, False, backend)
        return out
    acc = torch.float64 if dst.dtype == torch.float64 else torch.float32
    dtype, dst, src = src.dtype, dst.to(acc), src.to(acc)
    # |x - y|^2 as one product: of [x, |x|^2, 1] and [-2y, 1, |y|^2].
    left = torch.cat([dst, dst.square().sum(1, keepdim=True), dst.new_ones(dst.size(0), 1)], 1)
    right = torch.cat([-2 * src, src.new_ones(src.size(0), 1), src.square().sum(1, keepdim=True)], 1)
    # That of equal vectors may come out a little below 0.
    distance = _dots(left, right, graph, edges, backend).clamp(min=0)
    weight = (1 + factor * distance).reciprocal()
    ones = weight.new_ones(src.size(0), 1)
    total = linear.AGGREGATE(ones, weight, *rest, True, backend)
    difference: Tensor = total * dst - linear.AGGREGATE(src, weight, *rest, True, backend)
    return difference.to(dtype)


def _dots(left: Tensor, right: Tensor, graph: int, edges: int, backend: str) -> Tensor:
    out: Tensor = dots.SDDMM(left.unsqueeze(1), right.unsqueeze(1), graph, edges, False, True, backend)
    return out.squeeze(1)


def _record(dst: Tensor, src: Tensor, *rest: Any) -> Tensor | None:
    if not needs_grad(dst, src):
        return None
    recorded: Tensor = _Recorded.apply(dst, src, *rest)
    return recorded


FUSEDMM = Operator(SCHEMA, _kernel, _fake, _record)
"""(dst [num_dst, F], src [num_src, F], graph number, edges, rule, factor, backend) -> [num_dst, F]"""
