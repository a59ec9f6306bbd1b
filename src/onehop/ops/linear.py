"""The linear reductions, sum and mean: ``onehop::aggregate``."""

from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops import dots
from onehop.ops.library import define, keep_alive, needs_grad

SCHEMA = (
    "aggregate(Tensor x, Tensor? weight, Tensor? src_scale, Tensor? dst_scale, SymInt graph, SymInt rows, "
    "bool transposed, bool mean, bool widen, str backend) -> Tensor"
)


def _kernel(
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    graph: int,
    rows: int,
    transposed: bool,
    mean: bool,
    widen: bool,
    backend: str,
) -> Tensor:
    runner = backend_for(x.device, x.dtype, backend)
    return runner.aggregate(by_number(graph), transposed, x, weight, src_scale, dst_scale, mean, widen)


def _fake(
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    graph: int,
    rows: int,
    transposed: bool,
    mean: bool,
    widen: bool,
    backend: str,
) -> Tensor:
    dtype = torch.float32 if widen and x.dtype != torch.float64 else x.dtype
    return x.new_empty((rows, x.size(1)), dtype=dtype)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, src_scale: Any, dst_scale: Any, *rest: Any) -> Tensor:
        _save(ctx, False, x, weight, src_scale, dst_scale, *rest)
        with torch._C._AutoDispatchBelowAutograd():
            out: Tensor = AGGREGATE(x, weight, src_scale, dst_scale, *rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight, src_scale, dst_scale = ctx.saved_tensors
        number, rows, transposed, mean, _, backend = ctx.rest
        need_x, need_weight, need_src, need_dst = ctx.needs_input_grad[:4]
        run = _kernel if ctx.eager and _is_plain(grad) else AGGREGATE
        # The scale of a gradient's row: what its destination multiplied by, mean's division included.
        scale = dst_scale
        if mean:
            inverse = _inverse_degrees(number, transposed, grad)
            scale = inverse if dst_scale is None else inverse * dst_scale
        grad_x = grad_weight = grad_src = grad_dst = None
        if need_x or need_src:
            # Without the outer scale if that needs a gradient too, for then both need this product.
            outer = None if need_src else src_scale
            grad_x = run(
                grad, weight, scale, outer, number, ctx.sources, not transposed, False, True, backend
            )
            if need_src:
                grad_src = (grad_x * x).sum(-1).to(src_scale.dtype)
                grad_x = grad_x * src_scale.unsqueeze(-1) if need_x else None
            if grad_x is not None:
                grad_x = grad_x.to(ctx.dtype)
        if need_weight:
            left = grad if scale is None else grad * scale.unsqueeze(-1)
            right = x if src_scale is None else x * src_scale.unsqueeze(-1)
            grad_weight = dots.edge_dots(left, right, number, weight.size(0), transposed, backend).to(weight.dtype)
        if need_dst:
            plain = run(x, weight, src_scale, None, number, rows, transposed, mean, True, backend)
            grad_dst = (grad * plain).sum(-1).to(dst_scale.dtype)
        return grad_x, grad_weight, grad_src, grad_dst, None, None, None, None, None, None


class _RecordedEagerly(_Recorded):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, src_scale: Any, dst_scale: Any, *rest: Any) -> Tensor:
        _save(ctx, True, x, weight, src_scale, dst_scale, *rest)
        return _kernel(x, weight, src_scale, dst_scale, *rest)


def _save(
    ctx: Any, eager: bool, x: Tensor, weight: Any, src_scale: Any, dst_scale: Any, *rest: Any
) -> None:
    ctx.eager = eager
    ctx.save_for_backward(
        x if ctx.needs_input_grad[1] or ctx.needs_input_grad[2] or ctx.needs_input_grad[3] else None,
        weight,
        src_scale,
        dst_scale,
    )
    ctx.rest = rest
    ctx.graph = keep_alive(rest[0])
    ctx.sources, ctx.dtype = x.size(0), x.dtype


def _is_plain(grad: Tensor) -> bool:
    """Whether a backward pass works on plain numbers: not recorded, compiled or seen by a mode."""
    return (
        not torch.is_grad_enabled()
        and type(grad) is Tensor
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
    )


def aggregate_eagerly(
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    graph: int,
    rows: int,
    mean: bool,
) -> Tensor:
    """:data:`AGGREGATE` without the dispatcher, whose two turns cost more than a small graph's sums.

    For plain tensors outside every mode, transform and compiler, and arguments that fit.
    """
    rest = (graph, rows, False, mean, False, "")
    if needs_grad(x, weight, src_scale, dst_scale):
        out: Tensor = _RecordedEagerly.apply(x, weight, src_scale, dst_scale, *rest)
        return out
    return _kernel(x, weight, src_scale, dst_scale, *rest)


def _inverse_degrees(number: int, transposed: bool, like: Tensor) -> Tensor:
    graph = by_number(number)
    if transposed:
        graph = graph.transpose()
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return graph.inverse_in_degrees(dtype).to(like.device)


def _autograd(
    x: Tensor,
    weight: Tensor | None,
    src_scale: Tensor | None,
    dst_scale: Tensor | None,
    graph: int,
    rows: int,
    transposed: bool,
    mean: bool,
    widen: bool,
    backend: str,
) -> Tensor:
    if needs_grad(x, weight, src_scale, dst_scale):
        out: Tensor = _Recorded.apply(
            x, weight, src_scale, dst_scale, graph, rows, transposed, mean, widen, backend
        )
        return out
    with torch._C._AutoDispatchBelowAutograd():
        result: Tensor = AGGREGATE(
            x, weight, src_scale, dst_scale, graph, rows, transposed, mean, widen, backend
        )
    return result


AGGREGATE = define(SCHEMA, _kernel, _fake, _autograd)
"""(x, weight, src_scale, dst_scale, graph number, rows, transposed, mean, widen, backend) -> [rows, F]"""
