"""GCNConv, which multiplies before it aggregates.

(A X) W pays where W widens the features, and where the layer is trained on constant features, so that A X is
the same every time and is kept (:mod:`onehop.integrations.pyg.reuse`): the layer then needs no aggregation.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv

from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import lend
from onehop.integrations import session
from onehop.integrations.pyg import reuse, tasks
from onehop.integrations.pyg.associations import order
from onehop.integrations.pyg.associations.product import product
from onehop.integrations.pyg.conditions import FLOATS
from onehop.integrations.pyg.derived import Derived
from onehop.integrations.pyg.gcn_norm import Unweighted, without_weight
from onehop.integrations.pyg.graphs import COUNTING, SymmetricKey, normalised_graph
from onehop.integrations.pyg.sizes import is_too_small
from onehop.integrations.pyg.sparse_tensors import is_sparse_tensor
from onehop.integrations.rows import stand_in
from onehop.ops.contexts import autocast_dtype, compiling

_ROWS_DIM = -2


def associating(
    theirs: Callable[..., Any], gcn_norm: Callable[..., Any], traced: Callable[..., Any]
) -> Callable[..., Any]:
    """GCNConv's ``forward``, which aggregates first where that pays.

    Args:
        theirs: PyG's.
        gcn_norm: The normalisation with a memory that stands in for PyG's.
        traced: What runs while a program is traced; None from it means PyG's own.
    """
    ours, in_program = _forward, compiling

    def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
        if in_program():
            out = traced(self, gcn_norm, x, edge_index, edge_weight)
            return theirs(self, x, edge_index, edge_weight) if out is None else out
        return ours(theirs, gcn_norm, self, x, edge_index, edge_weight)

    return stand_in(theirs, forward)


def _forward(
    theirs: Callable[..., Any],
    gcn_norm: Callable[..., Any],
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any,
) -> Any:
    lin, symmetric = layer._modules.get("lin"), _is_symmetric(layer, x, edge_weight)
    plain = type(edge_index) is Tensor
    if (
        not (plain or is_sparse_tensor(edge_index))
        or (not symmetric and is_too_small(edge_index, x, layer.out_channels))
        or not order.may_choose(lin, x, *((edge_index,) if plain else ()))
        or lin.bias is not None
        or layer.node_dim != _ROWS_DIM
        or type(layer).message is not GCNConv.message
    ):
        return theirs(layer, x, edge_index, edge_weight)
    task = _task(layer, gcn_norm, x, edge_index, edge_weight, symmetric)
    if not order.linear(task):
        return theirs(layer, x, edge_index, edge_weight)
    before, after = order.columns(x, lin.weight)
    # Weights that PyG would normalise are new ones at every call.
    may_keep = before >= after and (edge_weight is None or not layer.normalize) and task.is_constant()
    # The product of features that are nearly all 0 costs less than that of their aggregate, which is kept.
    if before < after or (may_keep and reuse.trained_on(x) and not order.nearly_zero(x)):
        summed = task.run()
        if order.is_finite(summed):
            tasks.begin(task, layer, "before")
            if autocast_dtype(summed) is None:
                return product(summed, lin.weight, layer.bias)
            return _widened(product(summed, lin.weight, None), task, layer.bias)
    tasks.begin(task, layer)
    task.x = product(x, lin.weight, None, reuse.note_training if may_keep else None)
    out = task.run()
    return out if layer.bias is None else out + layer.bias


def _is_symmetric(layer: Any, x: Any, edge_weight: Any) -> bool:
    """Return whether the normalisation gives weights that are products of numbers of the nodes.

    PyG spends longer on it than the patch on making and recognising a graph, however small.
    """
    return (
        edge_weight is None
        and layer.normalize
        and not layer.improved
        and not layer.cached
        and isinstance(x, Tensor)
        and x.dtype in COUNTING
    )


def _widened(out: Tensor, task: Any, bias: Tensor | None) -> Tensor:
    """A product that came last under autocast, in the dtype of an aggregate that comes last.

    That has the dtype of messages, which are products times a factor, and then of the bias.
    """
    factor = task.scale if task.weight is None else task.weight
    dtype = out.dtype if factor is None else torch.promote_types(out.dtype, factor.dtype)
    if bias is None:
        return out.to(dtype)
    return (out + bias).to(torch.promote_types(dtype, bias.dtype))


def _task(
    layer: Any, gcn_norm: Any, x: Tensor, edge_index: Any, edge_weight: Tensor | None, symmetric: bool
) -> Any:
    """The task over the normalised edges, or a sentence why there is none."""
    if (
        type(edge_index) is not Tensor
        or edge_weight is not None
        or not layer.normalize
        or layer.cached
        or layer._cached_edge_index is not None
        or gcn_conv.gcn_norm is not gcn_norm
        or not x.is_cpu
        or not edge_index.is_cpu
        or edge_index.layout is not torch.strided
        or x.dtype not in FLOATS
        or session.now.settings.backend
    ):
        edges, weight = _edges(layer, x, edge_index, edge_weight)
        return tasks.task_of(layer, edges, {"x": x, "edge_weight": weight})
    if symmetric:
        # Most calls: from the edges to the graph at once, without a weight for each edge.
        forwards = layer.flow == "source_to_target"
        of_edges = SymmetricKey(x.size(0), layer.add_self_loops, forwards, x.dtype)
        found = remembered(edge_index, key=of_edges, make=lambda: normalised_graph(edge_index, of_edges))
        if found is not None:
            return tasks.task_over(found.graph, layer, x, None, found.scale)
    # The graph of the normalised edges is known by the edge_index, and needs no copy of them.
    key = Unweighted(x.size(0), layer.improved, layer.add_self_loops, layer.flow, x.dtype)
    known: Derived | None = CACHE.find(edge_index, key)
    graph = None if known is None or known.graph is None else known.graph()
    if known is not None and graph is not None:
        made = known.tensors[1]
        weight = None if known.scale is not None or made is None else lend(made)
        return tasks.task_over(graph, layer, x, weight, known.scale)
    # Few edges too, which gcn_norm does not remember: what is aggregated here is wide.
    edges, weight = without_weight(gcn_norm.__wrapped__, edge_index, key)
    task = tasks.task_of(layer, edges, {"x": x, "edge_weight": weight})
    known = CACHE.find(edge_index, key)
    if known is not None and order.linear(task):
        known.graph = weakref.ref(task.graph)
    return task


def _edges(layer: Any, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> tuple[Any, Any]:
    """The edges and weights that GCNConv's own forward would aggregate with."""
    if not layer.normalize:
        return edge_index, edge_weight
    of_tensors = type(edge_index) is Tensor
    if of_tensors and layer._cached_edge_index is not None:
        return layer._cached_edge_index[0], layer._cached_edge_index[1]
    if not of_tensors and layer._cached_adj_t is not None:
        return layer._cached_adj_t, edge_weight
    found = order.normalised(layer, x, edge_index, edge_weight, layer.add_self_loops, layer.improved)
    if not of_tensors:
        if layer.cached:
            layer._cached_adj_t = found[0]
        # PyG's weight goes along, and is looked at by nobody.
        return found[0], edge_weight
    if layer.cached:
        layer._cached_edge_index = found
    return found
