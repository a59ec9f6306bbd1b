"""GAT, GATv2 and graph transformers in a program: PyG's ``forward`` round one operator."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch_geometric.nn.dense import Linear

from onehop.graph.handle import GraphInProgram
from onehop.integrations import session
from onehop.integrations.pyg.programs import conditions
from onehop.integrations.pyg.programs.edges import EdgesInProgram
from onehop.integrations.pyg.programs.graphs import graph_in_program, with_loops
from onehop.ops import attention, gat, gatv2

_FORMS = {"gat": "GAT, fused", "gatv2": "GATv2, fused", "dot": "dot-product attention, fused"}
_VECTOR = 1


def edges_of(layer: Any, x: Any, edge_index: Any, features: Any, asked: Any) -> EdgesInProgram | str:
    """The edges to call PyG's ``forward`` with; or a sentence why its own code is to be traced.

    Args:
        layer: The layer.
        x: [N, K], or a pair.
        edge_index: [2, E].
        features: [E, L] or [E], of the edges, or None.
        asked: Whether, and how, the attention weights are asked for; None means not.
    """
    found = conditions.reason(layer, edge_index)
    if found is not None:
        return found
    if asked is not None:
        return conditions.ASKED
    kind = _kind(layer)
    if not kind or not conditions.is_patched(type(layer)):
        return conditions.NOT_TRACED
    ends = x if isinstance(x, tuple | list) else (x, x)
    for end in ends:
        if end is not None:
            found = conditions.features_reason(end, (2,), edge_index)
            if found is not None:
                return found
    return _setup_reason(layer, kind, ends, features, edge_index) or EdgesInProgram(edge_index, kind)


def _kind(layer: Any) -> str:
    form = conditions.form_of(type(layer))
    if form == ("transformer",):
        return "dot"
    return conditions.scored(type(layer)) if form == ("weights",) else ""


def _setup_reason(layer: Any, kind: str, ends: Any, features: Any, edge_index: Tensor) -> str | None:
    if torch.is_autocast_enabled(edge_index.device.type):
        return "autocast decides on the dtypes of its scores"
    if layer.flow != "source_to_target" or layer.node_dim != 0:
        return "it is in a compiled program, and flow or node_dim is not as usual"
    if type(layer.aggr_module).__name__ != "SumAggregation":
        return "its aggregation is not a sum"
    if len(layer._edge_update_forward_pre_hooks) + len(layer._edge_update_forward_hooks) > 0:
        return "message passing hooks are registered on it"
    if "edge_update" in layer.__dict__ or "edge_updater" in layer.__dict__:
        return "this instance overrides edge_update"
    if len(ends) != 2 or (ends[1] is None and kind != "gat"):
        return "PyG is left to report what does not fit"
    if features is None:
        return "PyG is left to report what does not fit" if _needs_features(layer, kind) else None
    if layer.lin_edge is None:
        # GAT leaves such features unread; the others complain.
        return None if kind == "gat" else "PyG is left to report what does not fit"
    if features.dim() not in (_VECTOR, 2) or features.size(0) != edge_index.size(1):
        return "PyG is left to report what does not fit"
    if kind == "dot" and features.dim() == _VECTOR:
        return "PyG is left to report what does not fit"
    if type(layer.lin_edge) is not Linear or layer.lin_edge.bias is not None:
        return "the edge features go through a layer other than PyG's Linear without bias"
    if not conditions.is_untouched(layer.lin_edge):
        return "hooks are registered on a module in it"
    if kind != "dot" and layer.add_self_loops and not _can_fill(layer.fill_value):
        return f"it is in a compiled program, and its self loops are filled by {layer.fill_value!r}"
    return None


def _needs_features(layer: Any, kind: str) -> bool:
    return kind == "dot" and layer.lin_edge is not None


def _can_fill(value: Any) -> bool:
    return isinstance(value, int | float) or value == "mean"


def attend(layer: Any, edges: EdgesInProgram, operands: dict[str, Any]) -> Tensor:
    """The aggregated messages of a layer whose ``forward`` was called with such edges."""
    first = operands["key"] if edges.kind == "dot" else operands["x"][0]
    conditions.note(layer, first, _FORMS[edges.kind], "sum")
    return (_transformer if edges.kind == "dot" else _scored)(layer, edges, operands)


def _scored(layer: Any, edges: EdgesInProgram, operands: dict[str, Any]) -> Tensor:
    x, asked = operands["x"], operands["alpha"].operands
    source, target = x
    size = operands.get("size")
    num_src = source.size(0)
    num_dst = num_src if target is None else target.size(0)
    loops = min(num_src, num_dst)
    if size is not None:
        num_dst, loops = size[1], min(size)
    if not layer.add_self_loops:
        loops = 0
    graph: Any = graph_in_program(edges.edge_index, num_src, num_dst, True, loops)
    features = _features(layer, edges, asked["edge_attr"], loops)
    mask = _drawn(layer, graph, source)
    backend = session.now.backend
    if edges.kind == "gatv2":
        edge = None if features is None else (features, layer.lin_edge.weight)
        return gatv2(
            graph,
            source,
            target,
            layer.att[0],
            layer.negative_slope,
            edge=edge,
            edge_mask=mask,
            backend=backend,
        )
    of_source, of_target = asked["alpha"]
    if of_target is None:
        of_target = of_source.new_zeros(num_dst, source.size(1))
    score = None
    if features is not None:
        shape = layer.heads, layer.out_channels
        per_head = (layer.lin_edge.weight.view(*shape, -1) * layer.att_edge.view(*shape, 1)).sum(1)
        score = features @ per_head.t()
    return gat(
        graph,
        source,
        of_source,
        of_target,
        layer.negative_slope,
        edge_score=score,
        edge_mask=mask,
        backend=backend,
    )


def _transformer(layer: Any, edges: EdgesInProgram, operands: dict[str, Any]) -> Tensor:
    query, key, value = operands["query"], operands["key"], operands["value"]
    graph: Any = graph_in_program(edges.edge_index, key.size(0), query.size(0), True)
    features = operands["edge_attr"]
    edge = None if features is None else (features, layer.lin_edge.weight)
    return attention(
        graph,
        query,
        key,
        value,
        1 / math.sqrt(layer.out_channels),
        edge=edge,
        edge_mask=_drawn(layer, graph, key),
        backend=session.now.backend,
    )


def _features(layer: Any, edges: EdgesInProgram, features: Any, loops: int) -> Tensor | None:
    """[E or more, K]: the features of the edges, and of the self loops that are added."""
    if features is None or layer.lin_edge is None:
        return None
    given: Tensor = features.view(-1, 1) if features.dim() == 1 else features
    if not layer.add_self_loops:
        return given
    if layer.fill_value == "mean":
        of_loops = _means(edges.edge_index, given, loops)
    else:
        of_loops = given.new_full((loops, given.size(1)), layer.fill_value)
    return with_loops(edges.edge_index, given, of_loops)


def _means(edge_index: Tensor, features: Tensor, nodes: int) -> Tensor:
    """[N, K]: for every node the mean over its incoming edges that are no loops; 0 where there are none."""
    keep = (edge_index[0] != edge_index[1]).to(features.dtype)
    count = keep.new_zeros(nodes).index_add(0, edge_index[1], keep)
    kept = torch.where(keep.unsqueeze(1) != 0, features, 0)
    total = features.new_zeros(nodes, features.size(1)).index_add(0, edge_index[1], kept)
    return total / count.clamp(min=1).unsqueeze(1)


def _drawn(layer: Any, graph: GraphInProgram, like: Tensor) -> Tensor | None:
    """[E or more, H]: the factors of the layer's dropout; None for none.

    They are drawn by torch's own operator outside ours, so that whatever torch does with random numbers in
    programs (its generators, recomputation) is done with these.
    """
    if not layer.training or not layer.dropout:
        return None
    return dropout(like.new_ones(graph.num_edges, like.size(1)), p=layer.dropout, training=True)
