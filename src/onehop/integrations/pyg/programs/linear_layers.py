"""GCNConv, SAGEConv and GraphConv in a program: a linear step and an aggregation as one operator."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense import Linear

from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.programs import conditions
from onehop.integrations.pyg.edges.program import (
    graph_in_program,
    normalised_edges_in_program,
    normalised_graph_in_program,
    with_loops,
)
from onehop.integrations.pyg.programs.linear import DTYPES, linear_aggregate
from onehop.integrations.pyg.programs.propagate import aggregate, reduction

_EMPTY = (
    "cached=True and nothing is kept yet: call the model once before it is compiled, or compile it with "
    "fullgraph=True"
)


def gcn(layer: Any, gcn_norm: Any, x: Any, edge_index: Any, edge_weight: Any) -> Tensor | None:
    """GCNConv's result in a program; None where its own ``forward`` is to be traced.

    Args:
        layer: The layer.
        gcn_norm: The normalisation that stands in for PyG's.
        x: [N, K].
        edge_index: [2, E].
        edge_weight: [E] or None.
    """
    if (
        conditions.reason(layer, edge_index) is not None
        or conditions.features_reason(x, (2,), edge_index) is not None
        or not conditions.has_message_of(type(layer), GCNConv)
        or not conditions.is_normalised_by(gcn_norm)
        or layer.node_dim != -2
    ):
        return None
    if layer.normalize and layer.cached:
        return _cached(layer, x, edge_index, edge_weight)
    if edge_weight is not None and (
        not isinstance(edge_weight, Tensor)
        or edge_weight.dim() != 1
        or edge_weight.size(0) != edge_index.size(1)
        or edge_weight.dtype is not x.dtype
    ):
        return None
    return _gcn(layer, x, _normalised(layer, x, edge_index, edge_weight))


def _cached(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Any) -> Tensor | None:
    """The result of a layer that keeps the normalised edges of its first call; None as for ``gcn``."""
    nodes, forwards = x.size(0), layer.flow == "source_to_target"
    kept = layer._cached_edge_index
    if kept is not None:
        edges, weight = kept
        return _gcn(layer, x, (graph_in_program(edges, nodes, nodes, forwards), weight, None))
    if edge_weight is not None:
        return None
    if not conditions.counts_when_it_runs():
        conditions.refuse(layer, _EMPTY)
        return None
    found = _normalised(layer, x, edge_index, None)
    layer._cached_edge_index = normalised_edges_in_program(
        edge_index, nodes, layer.improved, layer.add_self_loops, forwards, x.dtype
    )
    return _gcn(layer, x, found)


def _gcn(layer: Any, x: Tensor, normalised: tuple[GraphInProgram, Tensor | None, Tensor | None]) -> Tensor:
    """The linear step and the aggregation over normalised edges."""
    reduce = reduction(layer)
    graph, weight, scale = normalised
    if weight is not None:
        form = "source * weight"
    else:
        form = "source" if scale is None else "scaled source, scaled destination"
    conditions.note(layer, x, form, reduce)
    out = _combined(layer.lin, graph, x, weight, scale, reduce, own_before=False)
    return out if layer.bias is None else out + layer.bias


def _normalised(
    layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None
) -> tuple[GraphInProgram, Tensor | None, Tensor | None]:
    """The graph; the weights of its edges; and the numbers that multiply sources and destinations."""
    nodes, forwards = x.size(0), layer.flow == "source_to_target"
    if not layer.normalize:
        return graph_in_program(edge_index, nodes, nodes, forwards), edge_weight, None
    graph, scale = normalised_graph_in_program(edge_index, nodes, layer.add_self_loops, forwards, x.dtype)
    if edge_weight is None:
        return graph, None, scale
    if layer.add_self_loops:
        edge_weight = with_loops(
            edge_index, edge_weight, _loop_weights(layer, nodes, edge_index, edge_weight)
        )
    ones = edge_weight.new_ones(nodes, 1)
    degree = aggregate(graph, ones, edge_weight, None, "sum").squeeze(1)
    scale = degree.pow(-0.5)
    return graph, edge_weight, scale.masked_fill(scale == float("inf"), 0)


def _loop_weights(layer: Any, nodes: int, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """[N]: the weight of every node's loop, as PyG's ``add_remaining_self_loops`` has it.

    It is what the node's last loop weighs, with PyG's gradient to all of them.
    """
    filled = edge_weight.new_full((nodes + 1,), 2.0 if layer.improved else 1.0)
    # Edges that are no loops write to an entry that nobody reads.
    place = torch.where(edge_index[0] == edge_index[1], edge_index[0], nodes)
    return filled.index_put((place,), edge_weight)[:nodes]


def rooted(
    layer: Any, name: str, root: Any, x: Any, edge_index: Any, size: Any, edge_weight: Any
) -> Tensor | None:
    """The result of SAGEConv or GraphConv in a program; None where its own ``forward`` is to be traced.

    Args:
        layer: The layer.
        name: Of its linear step behind the aggregation.
        root: The linear step of the nodes' own features, or None.
        x: [N, K], or a pair.
        edge_index: [2, E].
        size: (num_src, num_dst), or None.
        edge_weight: [E] or None.
    """
    if isinstance(x, Tensor):
        x = (x, x)
    if (
        conditions.reason(layer, edge_index) is not None
        or not isinstance(x, tuple)
        or len(x) != 2
        or conditions.features_reason(x[0], (2,), edge_index) is not None
        or layer.node_dim != -2
        or layer.flow != "source_to_target"
        or size is not None
    ):
        return None
    source, own = x
    lin = getattr(layer, name)
    reduce = reduction(layer)
    if edge_weight is not None and (
        edge_weight.dim() != 1
        or edge_weight.size(0) != edge_index.size(1)
        or edge_weight.dtype is not source.dtype
    ):
        return None
    if not _may_combine(lin, source, edge_weight, None, reduce, own_before=True):
        return None
    rows = source.size(0) if own is None else own.size(0)
    conditions.note(layer, source, "source" if edge_weight is None else "source * weight", reduce)
    graph = graph_in_program(edge_index, source.size(0), rows, True)
    out = _combined(lin, graph, source, edge_weight, None, reduce, own_before=True)
    if lin.bias is not None:
        out = out + lin.bias
    return out if own is None or root is None else out + root(own)


def _combined(
    lin: Any,
    graph: GraphInProgram,
    x: Tensor,
    weight: Tensor | None,
    scale: Tensor | None,
    reduce: str,
    own_before: bool,
) -> Tensor:
    """The linear step without its bias, and the aggregation, in the order that costs less if it is free."""
    if _may_combine(lin, x, weight, scale, reduce, own_before):
        return linear_aggregate(graph, x, lin.weight, weight, scale, reduce == "mean", own_before)
    return aggregate(graph, lin(x), weight, scale, reduce)


def _may_combine(lin: Any, x: Tensor, weight: Any, scale: Any, reduce: str, own_before: bool) -> bool:
    """Return whether one operator does both steps: the linear one is plain, the other linear."""
    return (
        reduce in ("sum", "mean")
        and type(lin) is Linear
        and (own_before or lin.bias is None)
        and conditions.is_untouched(lin)
        and x.dtype in DTYPES
        and lin.weight.dtype is x.dtype
        and lin.weight.size(1) == x.size(1)
        and not (weight is not None and weight.requires_grad)
        and not (scale is not None and scale.requires_grad)
        and not torch.is_autocast_enabled(x.device.type)
        and session.now.settings.associate
        and not session.now.backend
    )
