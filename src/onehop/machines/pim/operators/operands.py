"""The operands of an aggregation, checked, scaled and quantised for the cores; and its final results."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.operands import Operands
from onehop.machines.pim.numbers import (
    INTEGERS,
    NAMES,
    TORCH_TYPES,
    accumulator,
    degree_bound,
    largest,
    quantise,
)
from onehop.plans.pim import PimPlan


@dataclass(frozen=True, slots=True)
class Prepared:
    """Operands in the form that the machine gets.

    Attributes:
        x: [num_src, F], contiguous.
        weight: [E], in the graph's order; None means that the kernel reads no weights.
        sums: Dtype of the sums.
        factor: Factor of quantised sums; None without quantisation.
    """

    x: Tensor
    weight: Tensor | None
    sums: str
    factor: Tensor | None


def checked(graph: Graph, inputs: Operands) -> Operands:
    """Check the operands of an aggregation and return them without gradients.

    Raises:
        ArgumentError: A shape, dtype or name does not fit.
    """
    inputs.check(graph)
    x = inputs.x
    if x.dtype not in NAMES:
        raise ArgumentError(f"x: expected one of {', '.join(TORCH_TYPES)}, got {x.dtype}.")
    if inputs.weight is not None and inputs.weight.dtype.is_floating_point != x.dtype.is_floating_point:
        raise ArgumentError(f"weight: expected {x.dtype} as the features, got {inputs.weight.dtype}.")
    for name in ("src_scale", "dst_scale"):
        if getattr(inputs, name) is not None and not x.dtype.is_floating_point:
            raise ArgumentError(f"{name}: integer features cannot be scaled; give x as floats.")
    return replace(inputs, x=x.detach())


def prepare(graph: Graph, inputs: Operands, plan: PimPlan, dtype: str) -> Prepared:
    """Return the operands as the host sends them: scaled, and quantised if an integer type must hold floats.

    Raises:
        ArgumentError: The dtype does not suit the features, or sums could overflow.
    """
    x, weight = inputs.x, inputs.weight
    if inputs.src_scale is not None:
        x = x * inputs.src_scale.to(x.dtype).unsqueeze(1)
    if weight is not None:
        weight = weight.detach()
        weight = weight if graph.perm is None else weight[graph.perm.long()]
    rowptr = graph.rowptr.numpy()
    if dtype not in INTEGERS:
        if not x.dtype.is_floating_point:
            raise ArgumentError(f"plan: dtype {dtype} for features of {x.dtype}; give x as floats.")
        kind = TORCH_TYPES[dtype]
        ordered = None if weight is None else weight.to(kind).contiguous()
        return Prepared(x.to(kind).contiguous(), ordered, accumulator(plan, dtype, 0), None)
    if x.dtype.is_floating_point:
        return _quantised(x, weight, rowptr, plan, dtype)
    if x.dtype != TORCH_TYPES[dtype]:
        raise ArgumentError(
            f"plan: dtype {dtype} for features of {x.dtype}; convert x, or omit the plan's dtype."
        )
    if weight is not None:
        weight = _narrowed(weight, TORCH_TYPES[dtype])
    bound = _magnitude(x) * degree_bound(rowptr, None if weight is None else weight.numpy())
    return Prepared(x.contiguous(), weight, accumulator(plan, dtype, bound), None)


def _quantised(x: Tensor, weight: Tensor | None, rowptr: np.ndarray, plan: PimPlan, dtype: str) -> Prepared:
    """Quantise features, and weights if there are any; int32 features such that sums fit 32 bits too."""
    values, weight_factor = None, 1.0
    if weight is not None:
        # Use half the bits, because products have the bits of both factors.
        most = largest({"int8": "int8", "int64": "int32"}.get(dtype, "int16"))
        quantised = quantise(weight.view(-1, 1), dtype, most, by_column=False)
        values, weight_factor = quantised.values.view(-1), float(quantised.factor)
    degree = max(degree_bound(rowptr, None if values is None else values.numpy()), 1)
    # More steps than float64 can distinguish would be useless.
    most = min(largest(dtype), 1 << 52)
    if dtype in ("int32", "int64"):
        room = largest(plan.accumulator or dtype) // degree
        if room < largest("int8") and plan.accumulator is None and dtype == "int32":
            room = largest("int64") // degree
        most = max(min(most, room), 1)
    features = quantise(x, dtype, most, plan.scale == "column")
    sums = accumulator(plan, dtype, most * degree)
    return Prepared(features.values.contiguous(), values, sums, features.factor * weight_factor)


def finish(graph: Graph, inputs: Operands, prepared: Prepared, out: Tensor) -> Tensor:
    """Return the results from the merged sums [num_dst, F]: dequantised, divided and scaled."""
    kind = inputs.x.dtype
    if prepared.factor is not None:
        out = (out.double() * prepared.factor).to(kind)
    elif kind.is_floating_point:
        out = out.to(kind)
    if inputs.reduce == "mean":
        kind = kind if kind.is_floating_point else torch.float32
        out = out.to(kind) * graph.inverse_in_degrees(kind).unsqueeze(1)
    if inputs.dst_scale is not None:
        out = out * inputs.dst_scale.to(out.dtype).unsqueeze(1)
    return out


def _magnitude(x: Tensor) -> int:
    return max(-int(x.min()), int(x.max())) if x.numel() else 0


def _narrowed(weight: Tensor, dtype: torch.dtype) -> Tensor:
    narrow = weight.to(dtype)
    if not torch.equal(narrow.to(weight.dtype), weight):
        limits = torch.iinfo(dtype)
        raise ArgumentError(
            f"weight: expected numbers from {limits.min} to {limits.max}, the range of {dtype}."
        )
    return narrow.contiguous()
