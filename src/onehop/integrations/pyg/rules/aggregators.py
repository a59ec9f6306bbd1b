"""PyG's aggregation modules on blocks of messages.

A block holds complete destination rows, so reducing block by block gives the same result. The formulas are
PyG's, computed with onehop's reductions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from onehop.compiler.rows import PARTS, BlockRows, Rows, statistic
from onehop.compiler.values import Read
from onehop.integrations.pyg.leave import LEFT_TO_PYG
from onehop.integrations.rows import is_own

# The reduction of an aggregation module, by its exact class.
REDUCTIONS: dict[Any, str] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
}
# The ``forward`` methods of these classes, by reduction; None if another library has replaced the method.
FORWARDS = {name: kind.forward if is_own(kind.forward) else None for kind, name in REDUCTIONS.items()}

_SCALERS = {"identity", "amplification", "attenuation", "linear", "inverse_linear"}
# Modes of combining several aggregations that treat each row separately.
_DENSE = ("cat", "sum", "mean", "max", "min", "logsumexp", "std", "var", "proj")


def aggregator_reason(module: Any) -> str | None:
    """Return why this module cannot reduce messages block by block; None if it can."""
    kind = type(module)
    if kind not in _ROWS:
        return f"its aggregation is {kind.__name__}, which onehop does not know"
    state = vars(module)
    if "forward" in state or "reduce" in state:
        return "its aggregation module is overridden"
    if kind is aggr.MultiAggregation:
        if module.mode not in _DENSE:
            return f"its aggregations are combined in the mode {module.mode}"
        return next(filter(None, map(aggregator_reason, module.aggrs)), None)
    if kind is aggr.DegreeScalerAggregation:
        return LEFT_TO_PYG if set(module.scaler) - _SCALERS else aggregator_reason(module.aggr)
    return None


def linear_reduction(module: Any) -> str | None:
    """Return the module's reduction if it is "sum" or "mean", so that rows may be split; else None."""
    reduce = REDUCTIONS.get(type(module))
    return reduce if reduce in ("sum", "mean") else None


def name_of(module: Any) -> str:
    """Return the name of a module that ``explain`` shows."""
    kind = type(module)
    if kind is aggr.MultiAggregation:
        return f"[{', '.join(map(name_of, module.aggrs))}]"
    if kind is aggr.DegreeScalerAggregation:
        return f"degree-scaled {name_of(module.aggr)}"
    return kind.__name__.removesuffix("Aggregation").lower()


def reduce(rows: Rows, module: Any, semi: bool | None = None) -> Tensor:
    """Reduces messages as an aggregation module does; the result is [rows, ...].

    Args:
        rows: The messages.
        module: The module.
        semi: Whether the module's ``semi_grad`` is on; None means the module's own setting.
    """
    return _ROWS[type(module)](rows, module, semi)


def simple_parts(module: Any) -> tuple[set[str], list[Any]] | None:
    """Return the reductions of :data:`onehop.messages.REDUCTIONS` that a module consists of.

    The second entry lists the contained modules that weight messages by a softmax of the messages. The result
    is None if the module needs other reductions.
    """
    kind = type(module)
    if kind in REDUCTIONS:
        return {REDUCTIONS[kind]}, []
    if kind is aggr.VarAggregation or kind is aggr.StdAggregation:
        return set(PARTS["var"]), []
    if kind is aggr.SoftmaxAggregation:
        return set(), [module]
    if kind is aggr.DegreeScalerAggregation:
        return simple_parts(module.aggr)
    if kind is not aggr.MultiAggregation:
        return None
    names: set[str] = set()
    weighted: list[Any] = []
    for one in module.aggrs:
        parts = simple_parts(one)
        if parts is None:
            return None
        names |= parts[0]
        weighted += parts[1]
    return names, weighted


def weights_reason(message: Read, module: Any) -> str | None:
    """Return why a module's softmax of messages cannot be compiled; None if it can."""
    t = module.t
    if not isinstance(t, Tensor):
        return None if isinstance(t, int | float) else "its softmax has a factor of a type that is not known"
    if t.dtype is not message.dtype or t.dim() != 1 or not t.is_cpu:
        return "its softmax has a factor of another kind than its messages"
    if t.numel() != 1 and (len(message.parts) != 1 or message.shape != (t.numel(),)):
        return "its softmax has more factors than one"
    return None


def _basic(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    return rows.reduced(REDUCTIONS[type(module)])


def _var(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    return statistic(rows, "var", module.semi_grad if semi is None else semi)


def _std(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    return statistic(rows, "std", module.var_aggr.semi_grad if semi is None else semi)


def _softmax(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    if module.channels != 1 and isinstance(rows, BlockRows):
        module.assert_two_dimensional_input(rows.messages, 0)
    return rows.softmax(module.t, is_constant(module))


def is_constant(module: Any) -> bool:
    """Return whether no gradient passes through the weights of a SoftmaxAggregation."""
    return bool(module.semi_grad and not module.learn)


def _powermean(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    p, x = module.p, rows.messages
    if module.channels != 1:
        module.assert_two_dimensional_input(x, 0)
        p = p.view(-1, module.channels)
    if isinstance(p, int | float) and p == 1:
        return rows.reduced("mean")
    # In PyG 2.6, the limits are constants.
    least, most = getattr(module, "min_value", 0), getattr(module, "max_value", 100)
    powers = x.clamp(min=least, max=most).pow(p)
    means = rows.of(powers, "mean")
    return means.clamp(min=least, max=most).pow(1.0 / p)


def _theirs(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    """Runs PyG's own module on the block's rows."""
    degrees = rows.graph.in_degrees
    index = torch.repeat_interleave(degrees, output_size=rows.graph.num_edges)
    out: Tensor = module(rows.messages, index, dim_size=rows.graph.num_dst, dim=0)
    return out


def _several(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    if module.fused_aggr is None or rows.dims != 2:
        outs = [reduce(rows, one) for one in module.aggrs]
    else:
        # PyG fuses some of the modules; if one fused module has semi_grad, it applies to all fused ones.
        half = module.fused_aggr.semi_grad
        outs = [
            reduce(rows, one, half if fused else None)
            for one, fused in zip(module.aggrs, module.is_fused_aggr, strict=True)
        ]
    combined: Tensor = module.combine(outs)
    return combined


def _scaled(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    out = reduce(rows, module.aggr)
    degrees = rows.per_row(rows.graph.in_degrees.to(out.dtype))
    outs = [out if name == "identity" else out * _scale(name, degrees, module) for name in module.scaler]
    return torch.cat(outs, dim=-1) if len(outs) > 1 else outs[0]


def _scale(name: str, degrees: Tensor, module: Any) -> Tensor:
    scale: Tensor
    if name == "amplification":
        scale = torch.log(degrees + 1) / module.avg_deg_log
    elif name == "attenuation":
        scale = module.avg_deg_log / torch.log(degrees.clamp(min=1) + 1)
    elif name == "linear":
        scale = degrees / module.avg_deg_lin
    else:
        scale = module.avg_deg_lin / degrees.clamp(min=1)
    return scale


_ROWS: dict[type, Callable[[Any, Any, bool | None], Tensor]] = {
    **dict.fromkeys(REDUCTIONS, _basic),
    aggr.VarAggregation: _var,
    aggr.StdAggregation: _std,
    aggr.SoftmaxAggregation: _softmax,
    aggr.PowerMeanAggregation: _powermean,
    aggr.MulAggregation: _theirs,
    aggr.MedianAggregation: _theirs,
    aggr.QuantileAggregation: _theirs,
    aggr.MultiAggregation: _several,
    aggr.DegreeScalerAggregation: _scaled,
}
