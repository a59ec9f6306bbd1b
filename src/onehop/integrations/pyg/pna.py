"""PNAConv without the joined statistics, which are scaled and multiplied a few rows at a time.

PyG joins A statistics times S scales, [N, S A F], behind the node's own features, and multiplies them. Here
the columns of the linear step's matrix that belong to a scale and its statistics are a separate matrix; see
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
from onehop.integrations.pyg.call import begin
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.layer import record_of
from onehop.integrations.pyg.leave import are_dense, are_features
from onehop.integrations.pyg.propagate import with_own_message
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.own_message import CompiledPlan
from onehop.ops.contexts import context_reason
from onehop.ops.scaled_statistics import scaled_statistics

_STATISTICS = {**REDUCTIONS, aggr.VarAggregation: "var", aggr.StdAggregation: "std"}

# Each scale: its function of the degree, the average that it involves, and whether that divides it.
_SCALES: dict[str, tuple[Callable[[Tensor], Tensor], str, bool]] = {
    "identity": (torch.ones_like, "", False),
    "amplification": (lambda degrees: torch.log(degrees + 1), "avg_deg_log", True),
    "attenuation": (lambda degrees: 1 / torch.log(degrees.clamp(min=1) + 1), "avg_deg_log", False),
    "linear": (lambda degrees: degrees, "avg_deg_lin", True),
    "inverse_linear": (lambda degrees: 1 / degrees.clamp(min=1), "avg_deg_lin", False),
}


def forward(_: Any, layer: Any, x: Any, edge_index: Any, edge_attr: Any = None) -> Tensor | None:
    """Runs PNAConv's ``forward``; None where PyG's code has to run."""
    if type(edge_index) is not Tensor or is_too_small(edge_index, x):
        return None
    record = record_of(layer)
    if record is None or record.reason is None or context_reason() is not None:
        return None
    statistics = _statistics(layer) if session.now.settings.associate else None
    if statistics is None or not _is_plain(layer, x, len(statistics)):
        return None
    towers, width = layer.towers, layer.F_in
    spread = x.view(-1, towers, width) if layer.divide_input else x.view(-1, 1, width)
    if not layer.divide_input and towers > 1:
        spread = spread.repeat(1, towers, 1)
    operands = {"x": spread, "edge_attr": edge_attr}
    task = with_own_message(record, layer, edge_index, (), operands)
    if not isinstance(task, CompiledPlan) or [part.program.width for part in task.message.parts] != (
        [width] * towers
    ):
        return None
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
    return layer.lin(torch.cat(outs, dim=1) if len(outs) > 1 else outs[0])  # type: ignore[no-any-return]


def _first_step(
    step: Any,
    module: Any,
    graph: Graph,
    own: Tensor,
    reduced: dict[str, Tensor],
    statistics: tuple[str, ...],
    scales: Tensor,
) -> Tensor:
    """The linear step of the nodes' own features, followed by all statistics times all scales."""
    columns, width = step.weight.size(1), own.size(1)
    of_own, of_statistics = step.weight.split([width, columns - width], dim=1)
    weight = of_statistics.view(step.weight.size(0), scales.size(1), -1).permute(1, 2, 0)
    weight = weight * _averages(module).view(-1, 1, 1)
    fastest = may_run_elsewhere(own)
    return linear(own, of_own, step.bias) + scaled_statistics(
        graph, reduced, statistics, scales, weight, fastest
    )


def _scales(module: Any, graph: Graph, dtype: torch.dtype) -> Tensor:
    """The part of each scale that depends on the degrees, [N, S]."""
    degrees = graph.in_degrees.to(dtype)
    return torch.stack([_SCALES[name][0](degrees) for name in module.scaler], dim=1)


def _averages(module: Any) -> Tensor:
    """The part of each scale that depends on the averages, which may be learned, [S]."""
    found = []
    for name in module.scaler:
        _, average, divides = _SCALES[name]
        value = getattr(module, average) if average else torch.ones_like(module.avg_deg_lin)
        # Times 1, so that the gradients of several averages are not views of one tensor.
        found.append(1 / value if divides else 1 * value)
    return torch.cat(found)


def _statistics(layer: Any) -> tuple[str, ...] | None:
    """The names of the statistics of the layer's aggregation; None if it has others, or combines them."""
    module = layer.aggr_module
    if type(module) is not aggr.DegreeScalerAggregation or not set(module.scaler) <= _SCALES.keys():
        return None
    inner, found = module.aggr, []
    for each in inner.aggrs if type(inner) is aggr.MultiAggregation and inner.mode == "cat" else [inner]:
        name = _STATISTICS.get(type(each))
        # A deviation is made from a variance.
        if name is None or getattr(getattr(each, "var_aggr", each), "semi_grad", False):
            return None
        found.append(name)
    return tuple(found)


def _is_plain(layer: Any, x: Any, count: int) -> bool:
    """Return whether the layer's first linear steps can be computed separately, for ``count`` statistics.

    All other conditions, hooks too, are checked where the message is compiled.
    """
    kind, module = type(layer), layer.aggr_module
    if (
        kind.message is not PNAConv.message
        or kind.update is not MessagePassing.update
        or not are_features(x)
        or x.size(1) != layer.F_in * (layer.towers if layer.divide_input else 1)
    ):
        return False
    columns = (1 + len(module.scaler) * count) * layer.F_in
    learned = [module.avg_deg_lin, module.avg_deg_log]
    for steps in layer.post_nns:
        if type(steps) is not Sequential or not len(steps) or type(steps[0]) not in (Linear, torch.nn.Linear):
            return False
        weight = steps[0].weight
        if type(weight) is not Parameter or weight.dim() != 2 or weight.size(1) != columns:
            return False
        learned.append(weight)
    return are_dense(*learned, dtype=x.dtype) and not any(each.is_inference() for each in learned)
