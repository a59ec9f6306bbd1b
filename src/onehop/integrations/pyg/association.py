"""(A X) W in place of A (X W), where A X is constant: GCN's first layer in full-batch training.

GCNConv multiplies by its weight and then aggregates. Where the features are constant, aggregating them first
gives a matrix that is the same every time and is kept (:mod:`onehop.integrations.pyg.reuse`): the layer then
needs no aggregation any more, forward or backward. The results agree within rounding.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense.linear import Linear

from onehop.integrations import reports
from onehop.integrations.pyg import propagate, reuse
from onehop.integrations.pyg.eligibility import MODULE_HOOKS, ClassRecord
from onehop.integrations.rows import stand_in

_ROWS_DIM = -2


def associating(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """GCNConv's ``forward``, which aggregates constant features before it multiplies them by the weight."""
    records: dict[type, ClassRecord] = {}
    ours = _forward

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        return ours(theirs, records, self, x, edge_index, edge_weight)

    return stand_in(theirs, forward)


def _forward(
    theirs: Callable[..., Any],
    records: dict[type, ClassRecord],
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any,
) -> Any:
    if (
        torch.compiler.is_compiling()
        or not _fits(layer, x, edge_index, edge_weight)
        or not reuse.constant(x, edge_weight, edge_index.size(-1))
        or not reuse.met_before(x)
    ):
        return theirs(layer, x, edge_index, edge_weight)
    edges, weight = _normalised(layer, x, edge_index, edge_weight)
    task = propagate.task_of(records, layer, edges, {"x": x, "edge_weight": weight})
    if not isinstance(task, propagate.Task) or not task.is_constant():
        return theirs(layer, x, edge_index, edge_weight)
    if reports.recording():
        reports.record(task.described(layer))
    out: Tensor = layer.lin(task.run())
    return out if layer.bias is None else out + layer.bias


def _fits(layer: Any, x: Any, edge_index: Any, edge_weight: Any) -> bool:
    """Whether it is a plain layer on plain features, and its weights are the same at every call."""
    lin = layer._modules.get("lin")
    return (
        type(x) is Tensor
        and type(edge_index) is Tensor
        and layer.node_dim == _ROWS_DIM
        and type(lin) is Linear
        and lin.bias is None
        and not isinstance(lin.weight, UninitializedParameter)
        and lin.weight.dtype is x.dtype
        and "forward" not in lin.__dict__
        and not any(lin.__dict__[name] for name in MODULE_HOOKS)
        and not torch.is_autocast_enabled("cpu")
        and (edge_weight is None or not layer.normalize)
        and type(layer).message is GCNConv.message
    )


def _normalised(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Any, Any]:
    """The edges and weights that GCNConv's own forward would aggregate with, from the same memory."""
    if not layer.normalize:
        return edge_index, edge_weight
    if layer._cached_edge_index is not None:
        return layer._cached_edge_index[0], layer._cached_edge_index[1]
    from torch_geometric.nn.conv import gcn_conv

    normalised = gcn_conv.gcn_norm(
        edge_index,
        edge_weight,
        x.size(layer.node_dim),
        layer.improved,
        layer.add_self_loops,
        layer.flow,
        x.dtype,
    )
    return normalised[0], normalised[1]
