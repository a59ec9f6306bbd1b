"""Weights and scales of an aggregation: meaning, checks, and conversion to the kernels' dtypes."""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from onehop.calls import accumulator
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.checks import check_head_weight, check_vector

Multiply = Literal["mul", "add", "sub", "copy", "sigmoid"]
MULTIPLY: tuple[Multiply, ...] = get_args(Multiply)
"""The ways to combine a weight with its edge's message: the choices of ``aggregate(multiply=...)``."""


def check_factors(
    graph: Graph, x: Tensor, weight: Any, src_scale: Tensor | None, dst_scale: Tensor | None
) -> None:
    """Raises unless a weight, [E] or [E, H], and scales of sources and destinations fit."""
    if isinstance(weight, Tensor) and weight.dim() == 2:
        check_head_weight(weight, graph.num_edges, x)
    elif weight is not None:
        check_vector("weight", weight, graph.num_edges, "edges", x)
    if src_scale is not None:
        check_vector("src_scale", src_scale, graph.num_src, "sources", x)
    if dst_scale is not None:
        check_vector("dst_scale", dst_scale, graph.num_dst, "destinations", x)


class Operands(NamedTuple):
    """Features and factors in a kernel's dtypes; ``widen`` is set if the result is wider than ``x``."""

    x: Tensor
    weight: Tensor | None
    src_scale: Tensor | None
    dst_scale: Tensor | None
    widen: bool


def promoted(
    x: Tensor, weight: Tensor | None, src_scale: Tensor | None, dst_scale: Tensor | None
) -> Operands:
    """Return weights and scales in the accumulator's dtype, and whether the result is wider than x."""
    dtype = x.dtype
    for vector in (weight, src_scale, dst_scale):
        if vector is not None:
            dtype = torch.promote_types(dtype, vector.dtype)
    if dtype == torch.float64:
        x = x.double()
    acc = accumulator(dtype)
    return Operands(
        x=x,
        weight=None if weight is None else weight.to(acc),
        src_scale=None if src_scale is None else src_scale.to(acc).contiguous(),
        dst_scale=None if dst_scale is None else dst_scale.to(acc).contiguous(),
        widen=dtype != x.dtype,
    )


def check_multiply(multiply: str, weight: Tensor | None) -> None:
    """Raises unless ``multiply`` is known and has the weight that it needs."""
    if multiply not in MULTIPLY:
        raise ArgumentError(f"multiply: expected one of {', '.join(MULTIPLY)}, got {multiply!r}.")
    if weight is None and multiply not in ("mul", "copy"):
        raise ArgumentError(f"multiply: {multiply!r} needs a weight for every edge, and weight is None.")


def factor_or_term(multiply: str, weight: Tensor | None) -> tuple[Tensor | None, bool]:
    """Return the factor or term of each message, and whether it is added instead of multiplied."""
    if weight is None or multiply == "copy":
        return None, False
    if multiply == "sigmoid":
        return weight.sigmoid(), False
    return (-weight if multiply == "sub" else weight), multiply in ("add", "sub")
