"""PNAConv that scales and multiplies statistics a few rows at a time, without joining them.

PyG concatenates the node's own features and A statistics times S scales, [N, S A F], and multiplies the
result. Here the columns of the linear step's matrix that belong to one scale are a separate matrix; see
:mod:`onehop.ops.scaled_statistics`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, Sequential
from torch.nn.functional import linear
from torch_geometric.nn import MessagePassing, PNAConv, aggr
from torch_geometric.nn.dense import Linear

from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.associations.product import may_run_elsewhere
from onehop.integrations.pyg.call import Call, begin
from onehop.integrations.pyg.edges.sizes import are_tiny, is_too_small
from onehop.integrations.pyg.edges.writes import watch
from onehop.integrations.pyg.layer import record_of
from onehop.integrations.pyg.leave import (
    LEFT_TO_PYG,
    TOO_SMALL,
    Leave,
    are_dense,
    are_features,
    leave_if,
    need,
)
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.own_message import CompiledPlan
from onehop.integrations.pyg.stages import with_own_message
from onehop.ops.contexts import context_reason
from onehop.ops.scaled_statistics import scaled_statistics

_STATISTICS = {**REDUCTIONS, aggr.VarAggregation: "var", aggr.StdAggregation: "std"}

# For each scale: the function of the degree, the name of the average, and whether the average divides.
_SCALES: dict[str, tuple[Callable[[Tensor], Tensor], str, bool]] = {
    "identity": (torch.ones_like, "", False),
    "amplification": (lambda degrees: torch.log(degrees + 1), "avg_deg_log", True),
    "attenuation": (lambda degrees: 1 / torch.log(degrees.clamp(min=1) + 1), "avg_deg_log", False),
    "linear": (lambda degrees: degrees, "avg_deg_lin", True),
    "inverse_linear": (lambda degrees: 1 / degrees.clamp(min=1), "avg_deg_lin", False),
}


def forward(_: Any, layer: Any, x: Any, edge_index: Any, edge_attr: Any = None) -> Tensor | None:
    """Computes PNAConv's ``forward``; None if there are so few edges that PyG is as fast.

    Raises:
        Leave: PyG's code has to run.
    """
    if are_tiny(edge_index):
        return None
    need(type(edge_index) is Tensor and session.now.settings.associate)
    need(not is_too_small(edge_index, x), TOO_SMALL)
    leave_if(context_reason())
    record = record_of(layer)
    if record is None:
        raise Leave(LEFT_TO_PYG)
    statistics = _statistics(layer.aggr_module)
    _check_layer(layer, x, len(statistics))
    towers, width = layer.towers, layer.F_in
    spread = x.view(-1, towers, width) if layer.divide_input else x.view(-1, 1, width)
    if not layer.divide_input and towers > 1:
        spread = spread.repeat(1, towers, 1)
    operands = {"x": spread, "edge_attr": edge_attr}
    task = with_own_message(Call(layer, record, edge_index, operands))
    if not isinstance(task, CompiledPlan):
        raise Leave(LEFT_TO_PYG)
    need([part.program.width for part in task.message.parts] == [width] * towers)
    begin(task, layer)
    rows, module = task.rows(), layer.aggr_module
    scales = _scales(module, task.graph, x.dtype)
    outs = []
    for tower, steps in enumerate(layer.post_nns):
        reduced = {name: rows.pieces(name)[tower] for name in task.reductions}
        out = _first_step(steps[0], module, task.graph, spread[:, tower], reduced, statistics, scales)
        for step in steps[1:]:
            out = step(out)
        outs.append(out)
    out = torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]
    watch(edge_index, out)
    return layer.lin(out)  # type: ignore[no-any-return]


def _first_step(
    step: Any,
    module: Any,
    graph: Graph,
    x: Tensor,
    reduced: dict[str, Tensor],
    statistics: tuple[str, ...],
    scales: Tensor,
) -> Tensor:
    """Computes the linear step of the nodes' own features and all scaled statistics."""
    columns, width = step.weight.size(1), x.size(1)
    of_x, of_statistics = step.weight.split([width, columns - width], dim=1)
    weight = of_statistics.view(step.weight.size(0), scales.size(1), -1).permute(1, 2, 0)
    weight = weight * _averages(module).view(-1, 1, 1)
    fastest = may_run_elsewhere(x)
    return linear(x, of_x, step.bias) + scaled_statistics(graph, reduced, statistics, scales, weight, fastest)


def _scales(module: Any, graph: Graph, dtype: torch.dtype) -> Tensor:
    """Return the part of each scale that depends on the degrees, [N, S]."""
    degrees = graph.in_degrees.to(dtype)
    return torch.stack([_SCALES[name][0](degrees) for name in module.scaler], dim=1)


def _averages(module: Any) -> Tensor:
    """Return the part of each scale that depends on the averages, which may be learned, [S]."""
    averages = []
    for name in module.scaler:
        _, average, divides = _SCALES[name]
        value = getattr(module, average) if average else torch.ones_like(module.avg_deg_lin)
        # The multiplication by 1 keeps the gradients of several averages from being views of one tensor.
        averages.append(1 / value if divides else 1 * value)
    return torch.cat(averages)


def _statistics(module: Any) -> tuple[str, ...]:
    """Return the names of an aggregation's statistics; raise :class:`Leave` for unsupported ones."""
    need(type(module) is aggr.DegreeScalerAggregation and set(module.scaler) <= _SCALES.keys())
    inner = module.aggr
    modules = inner.aggrs if type(inner) is aggr.MultiAggregation and inner.mode == "cat" else [inner]
    # A standard deviation module contains a variance module, which has the setting.
    need(not any(getattr(getattr(one, "var_aggr", one), "semi_grad", False) for one in modules))
    need(all(type(one) in _STATISTICS for one in modules))
    return tuple(_STATISTICS[type(one)] for one in modules)


def _check_layer(layer: Any, x: Any, count: int) -> None:
    """Raises :class:`Leave` unless the first linear steps can be split by ``count`` statistics.

    All other conditions, also on hooks, are checked when the message is compiled.
    """
    kind, module, width = type(layer), layer.aggr_module, layer.F_in
    need(kind.message is PNAConv.message and kind.update is MessagePassing.update and are_features(x))
    need(x.size(1) == width * (layer.towers if layer.divide_input else 1))
    learned = [module.avg_deg_lin, module.avg_deg_log]
    for steps in layer.post_nns:
        need(type(steps) is Sequential and len(steps) and type(steps[0]) in (Linear, torch.nn.Linear))
        weight = steps[0].weight
        need(type(weight) is Parameter and weight.dim() == 2)
        need(weight.size(1) == (1 + len(module.scaler) * count) * width)
        learned.append(weight)
    need(are_dense(*learned, dtype=x.dtype) and not any(tensor.is_inference() for tensor in learned))
