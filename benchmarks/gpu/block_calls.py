"""Sum and attention by the variant "blocks" of a plan, with their gradients."""

from typing import Any

import torch
from torch import Tensor

from onehop import Graph
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, Attention, attention_grad, on
from onehop.kernels.triton import availability
from onehop.kernels.triton.blocks import DTYPES
from onehop.plans.triton_blocks import default_blocks_plan


def dtypes() -> tuple[torch.dtype, ...]:
    """Those that can be computed here: the interpreter cannot multiply matrices of bfloat16."""
    return (torch.float16,) if availability.interpreted() else DTYPES


def total(graph: Graph, x: Tensor) -> Tensor:
    """The sum over every destination's edges, [num_dst, F]."""
    out: Tensor = _Sum.apply(x, graph)  # type: ignore[no-untyped-call]
    return out


def attention(graph: Graph, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As :func:`onehop.attention`, [num_dst, H, D]."""
    out: Tensor = _Attention.apply(value, key, query, graph)  # type: ignore[no-untyped-call]
    return out


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph, ctx.backend = graph, TritonBackend(default_blocks_plan(x.size(1)))
        return ctx.backend.run(graph, on(graph, Aggregate, x=x))  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.backend.run(ctx.graph, on(ctx.graph, Aggregate, x=grad, transposed=True)), None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, key: Tensor, query: Tensor, graph: Graph) -> Tensor:
        width = query.size(2)
        ctx.graph, ctx.backend = graph, TritonBackend(default_blocks_plan(max(width, value.size(2))))
        ctx.call = on(graph, Attention, rule="dot", value=value, key=key, query=query, factor=width**-0.5)
        ctx.results = ctx.backend.run(graph, ctx.call)
        out = ctx.results[0]
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        value, key, query, *_ = ctx.backend.run(ctx.graph, attention_grad(ctx.call, ctx.results, grad))
        return value, key, query, None
