"""The linear reductions, sum and mean: ``onehop::aggregate``.

``mean`` divides every message by the number of edges of its destination, so the transposed operator with the
same flag is its derivative: there the division goes by the columns. A weight [E, H] weighs each H-th part of
the columns by its own; the gradient to it has a dot product an edge and part.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import by_number
from onehop.ops import dots
from onehop.ops.batching import Dims
from onehop.ops.library import Function, Operator, keep_alive, needs_grad

SCHEMA = (
    "aggregate(Tensor x, Tensor? weight, Tensor? src_scale, Tensor? dst_scale, SymInt graph, SymInt rows, "
    "bool transposed, bool mean, bool widen, str backend) -> Tensor"
)

# Members of a batch that have so few columns are run together, as so many. With 50,000 nodes, 400,000 edges
# and 32 members: 3 ms in place of 21 for 1 column each, 7 in place of 24 for 2, 18 in place of 28 for 4. Of 7
# and more, bringing the columns together costs more than it saves.
_FOLDED_WIDTH = 4
_FOLDED_COLUMNS = 256


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


# (weight, src_scale, dst_scale); None where all three are.
_Constants = tuple[Tensor | None, ...] | None


class _OfFeatures(Function):
    """Where the features alone want a gradient, as in most layers.

    Its arguments are few because torch looks at each of them in every call, which small graphs notice.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, constants: _Constants, rest: tuple[Any, ...]) -> Tensor:
        if constants is not None:
            ctx.save_for_backward(*constants)
        ctx.of = (keep_alive(rest[0]), x.shape[0], x.dtype, constants is not None, rest)
        out: Tensor = AGGREGATE.unrecorded(x, *(constants or (None, None, None)), *rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        _, sources, dtype, saved, (number, _, transposed, mean, _, backend) = ctx.of
        weight, src_scale, dst_scale = ctx.saved_tensors if saved else (None, None, None)
        grad_x = AGGREGATE(
            grad, weight, dst_scale, src_scale, number, sources, not transposed, mean, True, backend
        )
        return grad_x if grad_x.dtype is dtype else grad_x.to(dtype), None, None


class _Recorded(Function):
    """Where weights or scales want one too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, src_scale: Any, dst_scale: Any, *rest: Any) -> Tensor:
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] or ctx.needs_input_grad[2] or ctx.needs_input_grad[3] else None,
            weight,
            src_scale,
            dst_scale,
        )
        ctx.rest = rest
        ctx.graph = keep_alive(rest[0])
        ctx.sources, ctx.dtype = x.size(0), x.dtype
        out: Tensor = AGGREGATE.unrecorded(x, weight, src_scale, dst_scale, *rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight, src_scale, dst_scale = ctx.saved_tensors
        number, rows, transposed, mean, _, backend = ctx.rest
        need_x, need_weight, need_src, need_dst = ctx.needs_input_grad[:4]
        grad_x = grad_weight = grad_src = grad_dst = None
        if need_x or need_src:
            # Without the outer scale if that needs a gradient too, for then both need this product.
            outer = None if need_src else src_scale
            grad_x = AGGREGATE(
                grad, weight, dst_scale, outer, number, ctx.sources, not transposed, mean, True, backend
            )
            if need_src:
                grad_src = (grad_x * x).sum(-1).to(src_scale.dtype)
                grad_x = grad_x * src_scale.unsqueeze(-1) if need_x else None
            if grad_x is not None:
                grad_x = grad_x.to(ctx.dtype)
        if need_weight:
            left = grad if dst_scale is None else grad * dst_scale.unsqueeze(-1)
            right = x if src_scale is None else x * src_scale.unsqueeze(-1)
            heads = weight.size(1) if weight.dim() == 2 else 1
            grad_weight = dots.edge_dots(
                left, right, heads, number, weight.size(0), transposed, mean, backend
            )
            grad_weight = grad_weight.view(weight.shape).to(weight.dtype)
        if need_dst:
            plain = AGGREGATE(x, weight, src_scale, None, number, rows, transposed, mean, True, backend)
            grad_dst = (grad * plain).sum(-1).to(dst_scale.dtype)
        return grad_x, grad_weight, grad_src, grad_dst, None, None, None, None, None, None


def _record(
    x: Tensor, weight: Tensor | None, src_scale: Tensor | None, dst_scale: Tensor | None, *rest: Any
) -> Tensor | None:
    recorded: Tensor | None = None
    plain = weight is None and src_scale is None and dst_scale is None
    constants = None if plain else (weight, src_scale, dst_scale)
    if constants is not None and needs_grad(*constants):
        recorded = _Recorded.apply(x, *constants, *rest)
    elif needs_grad(x):
        recorded = _OfFeatures.apply(x, constants, rest)
    return recorded


def _fold(call: Callable[..., Tensor], size: int, dims: Dims, args: Sequence[Any]) -> Tensor | None:
    """A batch of narrow features as further columns, so that the edges are read once for many members."""
    x, weight = args[:2]
    if dims[0] is None or any(dim is not None for dim in dims[1:]):
        return None
    x = x.movedim(dims[0], 0)
    if x.size(2) > _FOLDED_WIDTH:
        return None
    heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
    shape = (heads, x.size(2) // heads)

    def folded(members: Tensor) -> Tensor:
        # Each head's columns stay together, for they have a weight of their own.
        by_head = members.reshape(*members.shape[:2], *shape).permute(1, 2, 0, 3)
        wide = by_head.reshape(members.size(1), members.size(0) * members.size(2))
        out = call(wide, *args[1:])
        by_head = out.reshape(out.size(0), heads, members.size(0), shape[1]).permute(2, 0, 1, 3)
        return by_head.reshape(members.size(0), out.size(0), members.size(2))

    at_once = max(1, _FOLDED_COLUMNS // max(1, x.size(2)))
    parts = [folded(members) for members in x.split(at_once)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


AGGREGATE = Operator(SCHEMA, _kernel, _fake, _record, _fold)
"""(x, weight, src_scale, dst_scale, graph number, rows, transposed, mean, widen, backend) -> [rows, F]

The weight is [E], or [E, H] where F is a multiple of H.
"""
