"""GCNConv, SAGEConv and GraphConv in a program: a linear step and an aggregation as one operator."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.associations.operator import DTYPES, linear_aggregate
from onehop.integrations.pyg.associations.order import LINEAR, Function, is_product
from onehop.integrations.pyg.edges.program import (
    graph_in_program,
    normalised_edges_in_program,
    normalised_graph_in_program,
    with_loops,
)
from onehop.integrations.pyg.programs import conditions
from onehop.integrations.pyg.programs.propagate import aggregate, reduction

_EMPTY = (
    "cached=True and nothing is kept yet: call the model once before it is compiled, or compile it with "
    "fullgraph=True"
)
_Adjacency = tuple[GraphInProgram, Tensor | None, Tensor | None]


def gcn(
    gcn_norm: Function, theirs: Function, layer: Any, x: Any, edge_index: Any, edge_weight: Any = None
) -> Tensor | None:
    """Computes GCNConv's ``forward`` in a program; None if torch has to trace PyG's code.

    Arguments are those of :func:`.order.gcn`.
    """
    if (
        not _takes(layer, x, edge_index, edge_weight)
        or not conditions.has_message_of(type(layer), GCNConv)
        or not conditions.is_normalised_by(gcn_norm)
    ):
        return None
    adjacency = _adjacency(layer, x, edge_index, edge_weight)
    if adjacency is None:
        return None
    graph, weight, scale = adjacency
    reduce, lin = reduction(layer), layer.lin
    form = "source" if scale is None else "scaled source, scaled destination"
    conditions.note(layer, x, form if weight is None else "source * weight", reduce)
    if _combines(lin, x, weight, reduce, biased=False):
        out = linear_aggregate(graph, x, lin.weight, weight, scale, reduce == "mean", own_before=False)
    else:
        out = aggregate(graph, lin(x), weight, scale, reduce)
    return out if layer.bias is None else out + layer.bias


def rooted(
    layer: Any, linear: str, own: str, x: Any, edge_index: Any, size: Any, weights: dict[str, Any]
) -> Tensor | None:
    """Computes (A X) W^T + b + T V^T in a program; None if torch has to trace PyG's code.

    Arguments are those of :func:`.order.rooted`.
    """
    if isinstance(x, Tensor):
        x = (x, x)
    edge_weight = weights.get("edge_weight")
    if (
        not isinstance(x, tuple)
        or len(x) != 2
        or not _takes(layer, x[0], edge_index, edge_weight)
        or layer.flow != "source_to_target"
        or size is not None
    ):
        return None
    (source, target), reduce = x, reduction(layer)
    lin, root = getattr(layer, linear), getattr(layer, own) if own else None
    if not _combines(lin, source, edge_weight, reduce, biased=True):
        return None
    rows = source.size(0) if target is None else target.size(0)
    conditions.note(layer, source, "source" if edge_weight is None else "source * weight", reduce)
    graph = graph_in_program(edge_index, source.size(0), rows, True)
    out = linear_aggregate(graph, source, lin.weight, edge_weight, None, reduce == "mean", own_before=True)
    if lin.bias is not None:
        out = out + lin.bias
    return out if target is None or root is None else out + root(target)


def _takes(layer: Any, x: Any, edge_index: Any, edge_weight: Any) -> bool:
    """Return whether the layer is set up for the operators of programs, and its operands fit them."""
    if (
        conditions.reason(layer, edge_index) is not None
        or conditions.features_reason(x, (2,), edge_index) is not None
        or layer.node_dim != -2
    ):
        return False
    return edge_weight is None or (
        isinstance(edge_weight, Tensor)
        and edge_weight.dim() == 1
        and edge_weight.size(0) == edge_index.size(1)
        and edge_weight.dtype is x.dtype
    )


def _combines(lin: Any, x: Tensor, weight: Tensor | None, reduce: str, biased: bool) -> bool:
    """Return whether one operator does both steps; weights that need a gradient are left to aggregations."""
    return (
        reduce in LINEAR
        and is_product(lin, x, biased)
        and x.dtype in DTYPES
        and lin.weight.dtype is x.dtype
        and (weight is None or not weight.requires_grad)
        and not torch.is_autocast_enabled(x.device.type)
        and session.now.settings.associate
        and not session.now.backend
    )


def _adjacency(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Any) -> _Adjacency | None:
    """GCNConv's graph; the weights of its edges; and the numbers that multiply sources and destinations.

    None if the layer has to keep normalised edges that a program cannot make.
    """
    nodes, forwards, loops = x.size(0), layer.flow == "source_to_target", layer.add_self_loops
    if not layer.normalize:
        return graph_in_program(edge_index, nodes, nodes, forwards), edge_weight, None
    if layer._cached_edge_index is not None:
        edges, weight = layer._cached_edge_index
        return graph_in_program(edges, nodes, nodes, forwards), weight, None
    if layer.cached:
        if edge_weight is not None:
            return None
        if not conditions.counts_when_it_runs():
            conditions.refuse(layer, _EMPTY)
            return None
    graph, scale = normalised_graph_in_program(edge_index, nodes, loops, forwards, x.dtype)
    if layer.cached:
        layer._cached_edge_index = normalised_edges_in_program(
            edge_index, nodes, layer.improved, loops, forwards, x.dtype
        )
    if edge_weight is None:
        return graph, None, scale
    if loops:
        edge_weight = with_loops(
            edge_index, edge_weight, _loop_weights(layer, nodes, edge_index, edge_weight)
        )
    degree = aggregate(graph, edge_weight.new_ones(nodes, 1), edge_weight, None, "sum").squeeze(1)
    scale = degree.pow(-0.5)
    return graph, edge_weight, scale.masked_fill(scale == float("inf"), 0)


def _loop_weights(layer: Any, nodes: int, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """[N]: the weight of every node's loop, as PyG's ``add_remaining_self_loops`` has it.

    It is what the node's last loop weighs, with PyG's gradient to all of them.
    """
    filled = edge_weight.new_full((nodes + 1,), 2.0 if layer.improved else 1.0)
    # Edges that are no loops write to an entry that is never read.
    place = torch.where(edge_index[0] == edge_index[1], edge_index[0], nodes)
    return filled.index_put((place,), edge_weight)[:nodes]
