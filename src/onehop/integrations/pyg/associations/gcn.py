"""GCNConv, which multiplies before it aggregates.

(A X) W pays where W widens the features, and where the layer is trained on constant features, so that A X is
the same every time and is kept (:mod:`onehop.integrations.pyg.reuse`): the layer then needs no aggregation.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.nn import GCNConv

from onehop.integrations.pyg import propagate, reuse
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.rows import stand_in

_ROWS_DIM = -2


def associating(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """GCNConv's ``forward``, which aggregates first where that pays."""
    ours = _forward

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        return ours(theirs, self, x, edge_index, edge_weight)

    return stand_in(theirs, forward)


def _forward(
    theirs: Callable[..., Any],
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any,
) -> Any:
    lin = layer._modules.get("lin")
    if (
        not order.may_choose(lin, x)
        or lin.bias is not None
        or type(edge_index) is not Tensor
        or layer.node_dim != _ROWS_DIM
        or type(layer).message is not GCNConv.message
    ):
        return theirs(layer, x, edge_index, edge_weight)
    # Weights that PyG would normalise are new ones at every call.
    may_keep = (edge_weight is None or not layer.normalize) and reuse.constant(
        x, edge_weight, edge_index.size(-1)
    )
    first = order.aggregating_first_pays(x, lin.weight)
    if not may_keep and not first:
        return theirs(layer, x, edge_index, edge_weight)
    edges, weight = _edges(layer, x, edge_index, edge_weight)
    task = propagate.task_of(layer, edges, {"x": x, "edge_weight": weight})
    if not order.linear(task):
        return theirs(layer, x, edge_index, edge_weight)
    if first or (task.is_constant() and reuse.trained_on(x)):
        summed = task.run()
        if order.is_finite(summed):
            order.told(task, layer, "before")
            return product(summed, lin.weight, layer.bias)
    order.told(task, layer, None)
    task.x = product(x, lin.weight, None, reuse.note_training)
    out = task.run()
    return out if layer.bias is None else out + layer.bias


def _edges(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Any, Any]:
    """The edges and weights that GCNConv's own forward would aggregate with."""
    if not layer.normalize:
        return edge_index, edge_weight
    if layer._cached_edge_index is not None:
        return layer._cached_edge_index[0], layer._cached_edge_index[1]
    found = order.normalised(layer, x, edge_index, edge_weight, layer.add_self_loops, layer.improved)
    if layer.cached:
        layer._cached_edge_index = found
    return found
