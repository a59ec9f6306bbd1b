"""Reduction of messages: PyG's aggregation modules, on the rows of a block's graph.

A block holds whole destination rows, so what a module makes of each is what it makes of it among all others.
The formulas are those of PyG's modules, on onehop's reductions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from onehop.graph import Graph
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, REDUCTIONS
from onehop.ops.aggregate import aggregate

_SCALERS = {"identity", "amplification", "attenuation", "linear", "inverse_linear"}
# Ways to combine several aggregations that treat each row on its own.
_DENSE = ("cat", "sum", "mean", "max", "min", "logsumexp", "std", "var", "proj")


def aggregator_reason(module: Any) -> str | None:
    """Return why messages cannot be reduced row by row as this module does; None if they can."""
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
    """The module's reduction if it is "sum" or "mean", so that rows may be cut; None for other modules."""
    reduce = REDUCTIONS.get(type(module))
    return reduce if reduce in ("sum", "mean") else None


def name_of(module: Any) -> str:
    """The name that ``explain`` shows."""
    kind = type(module)
    if kind is aggr.MultiAggregation:
        return f"[{', '.join(map(name_of, module.aggrs))}]"
    if kind is aggr.DegreeScalerAggregation:
        return f"degree-scaled {name_of(module.aggr)}"
    return kind.__name__.removesuffix("Aggregation").lower()


class BlockRows:
    """The messages of a block and its rows; remembers what several reductions share.

    Args:
        graph: Of the block: its sources are the block's edges.
        messages: [edges, ...].
        node_dim: As the layer has it.
    """

    def __init__(self, graph: Graph, messages: Tensor, node_dim: int) -> None:
        self.graph = graph
        self.messages = messages
        self.node_dim = node_dim
        self._mean: Tensor | None = None
        self._turned: Graph | None = None

    def reduce(self, module: Any, semi: bool | None = None) -> Tensor:
        """Reduces the messages as an aggregation module does: [rows, ...]."""
        return _ROWS[type(module)](self, module, semi)

    def reduced(self, reduce: str, messages: Tensor | None = None) -> Tensor:
        """Sum, mean, max or min over each row."""
        return aggregate(self.graph, self.messages if messages is None else messages, reduce=reduce)

    def mean(self) -> Tensor:
        """The mean over each row."""
        if self._mean is None:
            self._mean = self.reduced("mean")
        return self._mean

    def spread(self, rows: Tensor) -> Tensor:
        """For every edge, its row."""
        if self._turned is None:
            self._turned = self.graph.transpose()
        return aggregate(self._turned, rows)

    def per_row(self, numbers: Tensor) -> Tensor:
        """One number a row, to multiply the result by."""
        return numbers.view(-1, *[1] * (self.messages.dim() - 1))


def _basic(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    reduce = REDUCTIONS[type(module)]
    return rows.mean() if reduce == "mean" else rows.reduced(reduce)


def _var(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    mean = rows.mean()
    with torch.set_grad_enabled(torch.is_grad_enabled() and not (module.semi_grad if semi is None else semi)):
        mean_of_squares = rows.reduced("mean", rows.messages * rows.messages)
    return mean_of_squares - mean * mean


def _std(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    out = _var(rows, module.var_aggr, semi).clamp(min=1e-5).sqrt()
    return out.masked_fill(out <= math.sqrt(1e-5), 0.0)


def _softmax(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    t, x = module.t, rows.messages
    if module.channels != 1:
        module.assert_two_dimensional_input(x, rows.node_dim)
        t = t.view(-1, module.channels)
    scores = x if isinstance(t, int | float) and t == 1 else x * t
    constant = module.semi_grad and not module.learn
    with torch.set_grad_enabled(torch.is_grad_enabled() and not constant):
        largest = rows.reduced("max", scores.detach())
        raised = (scores - rows.spread(largest)).exp()
        alpha = raised / rows.spread(rows.reduced("sum", raised) + 1e-16)
    return rows.reduced("sum", x * alpha)


def _powermean(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    p, x = module.p, rows.messages
    if module.channels != 1:
        module.assert_two_dimensional_input(x, rows.node_dim)
        p = p.view(-1, module.channels)
    if isinstance(p, int | float) and p == 1:
        return rows.mean()
    # PyG 2.6 has the limits fixed.
    least, most = getattr(module, "min_value", 0), getattr(module, "max_value", 100)
    powers = x.clamp(min=least, max=most).pow(p)
    means = rows.reduced("mean", powers)
    return means.clamp(min=least, max=most).pow(1.0 / p)


def _theirs(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    """PyG's own module, on the block's rows."""
    degrees = rows.graph.in_degrees
    index = torch.repeat_interleave(degrees, output_size=rows.graph.num_edges)
    out: Tensor = module(rows.messages, index, dim_size=rows.graph.num_dst, dim=rows.node_dim)
    return out


def _several(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    if module.fused_aggr is None or rows.messages.dim() != 2:
        outs = [rows.reduce(one) for one in module.aggrs]
    else:
        # PyG fuses some of them, and then one of them that asks for half a gradient decides for all of these.
        half = module.fused_aggr.semi_grad
        outs = [
            rows.reduce(one, half if fused else None)
            for one, fused in zip(module.aggrs, module.is_fused_aggr, strict=True)
        ]
    combined: Tensor = module.combine(outs)
    return combined


def _scaled(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    out = rows.reduce(module.aggr)
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


_ROWS: dict[type, Callable[[BlockRows, Any, bool | None], Tensor]] = {
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
