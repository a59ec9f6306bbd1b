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


class Rows:
    """Messages, as their reductions over the rows of a graph show them.

    Args:
        graph: The graph.
        dims: Dimensions of the messages, that of the edges among them.
    """

    def __init__(self, graph: Graph, dims: int) -> None:
        self.graph = graph
        self.dims = dims

    def reduce(self, module: Any, semi: bool | None = None) -> Tensor:
        """Reduces the messages as an aggregation module does: [rows, ...].

        Args:
            module: The module.
            semi: Whether half a gradient is asked for; None leaves it to the module.
        """
        return _ROWS[type(module)](self, module, semi)

    def reduced(self, reduce: str) -> Tensor:
        """Sum, mean, max or min over each row."""
        raise NotImplementedError

    def mean_of_squares(self, constant: bool) -> Tensor:
        """The mean of the squares over each row; no gradient passes through it if it is constant."""
        raise NotImplementedError

    def softmax(self, module: Any) -> Tensor:
        """Their sum over each row, weighted by a softmax of their own."""
        raise NotImplementedError

    def per_row(self, numbers: Tensor) -> Tensor:
        """One number a row, to multiply the result by."""
        return numbers.view(-1, *[1] * (self.dims - 1))


class BlockRows(Rows):
    """The messages of a block and its rows; remembers what several reductions share.

    Args:
        graph: Of the block: its sources are the block's edges.
        messages: [edges, ...].
        node_dim: As the layer has it.
    """

    def __init__(self, graph: Graph, messages: Tensor, node_dim: int) -> None:
        super().__init__(graph, messages.dim())
        self.messages = messages
        self.node_dim = node_dim
        self._mean: Tensor | None = None
        self._turned: Graph | None = None

    def reduced(self, reduce: str) -> Tensor:
        """Sum, mean, max or min over each row."""
        if reduce != "mean":
            return self.of(self.messages, reduce)
        if self._mean is None:
            self._mean = self.of(self.messages, "mean")
        return self._mean

    def mean_of_squares(self, constant: bool) -> Tensor:
        """The mean of the squares over each row; no gradient passes through it if it is constant."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not constant):
            return self.of(self.messages * self.messages, "mean")

    def softmax(self, module: Any) -> Tensor:
        """Their sum over each row, weighted by a softmax of their own."""
        t, x = module.t, self.messages
        if module.channels != 1:
            module.assert_two_dimensional_input(x, self.node_dim)
            t = t.view(-1, module.channels)
        scores = x if isinstance(t, int | float) and t == 1 else x * t
        constant = module.semi_grad and not module.learn
        with torch.set_grad_enabled(torch.is_grad_enabled() and not constant):
            largest = self.of(scores.detach(), "max")
            raised = (scores - self.spread(largest)).exp()
            alpha = raised / self.spread(self.of(raised, "sum") + 1e-16)
        return self.of(x * alpha, "sum")

    def of(self, numbers: Tensor, reduce: str) -> Tensor:
        """Sum, mean, max or min of one number for each of the messages'."""
        return aggregate(self.graph, numbers, reduce=reduce)

    def spread(self, rows: Tensor) -> Tensor:
        """For every edge, its row."""
        if self._turned is None:
            self._turned = self.graph.transpose()
        return aggregate(self._turned, rows)


def simple_parts(module: Any) -> tuple[set[str], list[Any]] | None:
    """Reductions of :data:`onehop.messages.REDUCTIONS` that a module is made of; None if these do not do.

    With them come the modules in it that weight messages by a softmax of their own.
    """
    kind = type(module)
    if kind in REDUCTIONS:
        return {REDUCTIONS[kind]}, []
    if kind is aggr.VarAggregation or kind is aggr.StdAggregation:
        return {"mean", "squares"}, []
    if kind is aggr.SoftmaxAggregation:
        return set(), [module]
    if kind is aggr.DegreeScalerAggregation:
        return simple_parts(module.aggr)
    if kind is not aggr.MultiAggregation:
        return None
    names: set[str] = set()
    weighted: list[Any] = []
    for one in module.aggrs:
        found = simple_parts(one)
        if found is None:
            return None
        names |= found[0]
        weighted += found[1]
    return names, weighted


def _basic(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    return rows.reduced(REDUCTIONS[type(module)])


def _var(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    mean = rows.reduced("mean")
    return rows.mean_of_squares(module.semi_grad if semi is None else semi) - mean * mean


def _std(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    out = _var(rows, module.var_aggr, semi).clamp(min=1e-5).sqrt()
    return out.masked_fill(out <= math.sqrt(1e-5), 0.0)


def _softmax(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    return rows.softmax(module)


def _powermean(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    p, x = module.p, rows.messages
    if module.channels != 1:
        module.assert_two_dimensional_input(x, rows.node_dim)
        p = p.view(-1, module.channels)
    if isinstance(p, int | float) and p == 1:
        return rows.reduced("mean")
    # PyG 2.6 has the limits fixed.
    least, most = getattr(module, "min_value", 0), getattr(module, "max_value", 100)
    powers = x.clamp(min=least, max=most).pow(p)
    means = rows.of(powers, "mean")
    return means.clamp(min=least, max=most).pow(1.0 / p)


def _theirs(rows: BlockRows, module: Any, semi: bool | None) -> Tensor:
    """PyG's own module, on the block's rows."""
    degrees = rows.graph.in_degrees
    index = torch.repeat_interleave(degrees, output_size=rows.graph.num_edges)
    out: Tensor = module(rows.messages, index, dim_size=rows.graph.num_dst, dim=rows.node_dim)
    return out


def _several(rows: Rows, module: Any, semi: bool | None) -> Tensor:
    if module.fused_aggr is None or rows.dims != 2:
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


def _scaled(rows: Rows, module: Any, semi: bool | None) -> Tensor:
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
