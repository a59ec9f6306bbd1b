"""The fast paths of attention layers: fused where that can be, else a weighted sum for each head.

Every recipe checks its operands as PyG would, and returns what is left to do. What PyG would complain about
is refused, so that PyG's own error appears. Numbers for each edge and head may be made, rows for each edge
not. Of a pair of operands, PyG takes the first for the sources and the second for the destinations, whatever
the flow.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu

from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg import attention_heat, attention_relational, attention_typed, several_reductions
from onehop.integrations.pyg.attention_operands import (
    alike_reason,
    dropout_factors,
    dtypes_reason,
    is_feature,
    pair_of,
)
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.integrations.pyg.edge_features import edge_rows, edge_score
from onehop.integrations.pyg.pending import Pending, unasked
from onehop.integrations.pyg.placement import place_attention
from onehop.ops import attention, edge_softmax, gat, gatv2, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import widened

# Behind the form that ``explain`` shows, by whether the weights are asked for.
_WEIGHTS = ("", ", with weights")
_BY_PYG = "source * weight for each head, weights by PyG"


def prepare(kind: str, call: Propagation) -> AttentionTask | str:
    """Prepares a layer of this kind of attention; or returns why PyG has to run it."""
    task = _RECIPES[kind](call)
    if isinstance(task, AttentionTask):
        task.backend, layer = call.backend, call.layer
        if session.now.machine:
            # Recipes ask for the backend when they run.
            task.backend = call.backend = place_attention(layer, task)
        # What propagate gives, in whatever shape, is what the layer returns where it adds nothing.
        adds = (
            getattr(layer, "bias", None) is not None
            or getattr(layer, "res", None) is not None
            or getattr(layer, "root_weight", False)
        )
        if task.fused and not adds:
            task.run = _copied(task.run)
    return task


def _copied(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A run whose result may be written to: attention's backward pass reads its result, PyG's does not."""
    return lambda: run().clone()


def _of_pending(call: Propagation) -> AttentionTask | str:
    """GAT and GATv2: the source's features times the weights of the heads."""
    x = pair_of(call, "x")
    if isinstance(x, str):
        return x
    source = x[0]
    if source is None:
        return LEFT_TO_PYG
    if call.layer.node_dim != 0:
        return "node_dim is not 0"
    graph = call.graph(source.size(0))
    if graph is None:
        return OUT_OF_RANGE
    weights = call.operands["alpha"]
    if type(weights) is Pending:
        fused = _FUSED[weights.kind](call, weights, x, graph)
        if isinstance(fused, AttentionTask):
            return fused
        weights = weights.compute()
    if not is_feature(call, weights, 2) or weights.shape != (call.num_edges, source.size(1)):
        return "the weights are not one number an edge and head"

    def run() -> Tensor:
        return reduce_rows(graph, source, weight=weights, reduce=call.reduce, backend=call.backend)

    return AttentionTask(_BY_PYG, call.reduce, graph, source, run)


def _fused_gat(
    call: Propagation, pending: Pending, x: tuple[Tensor | None, Tensor | None], graph: Graph
) -> AttentionTask | None:
    layer, operands = call.layer, pending.operands
    source = x[0]
    if source is None or not _can_fuse(call, pending, {"alpha", "edge_attr", "size"}):
        return None
    scores = operands["alpha"]
    if operands["size"] != call.operands.get("size") or type(scores) is not tuple or len(scores) != 2:
        return None
    of_source, of_target = scores
    heads = source.size(1)
    if of_target is None:
        of_target = of_source.new_zeros(graph.num_dst, heads)
    dtype = of_source.dtype
    for score, rows in ((of_source, graph.num_src), (of_target, graph.num_dst)):
        if not is_feature(call, score, 2) or score.shape != (rows, heads) or score.dtype is not dtype:
            return None
    dtype = widened(source, dtype)
    # Under autocast the scores are wider than the features, and widen the messages.
    if torch.promote_types(source.dtype, dtype) is not dtype:
        return None
    attributes = operands["edge_attr"]
    extra = None if attributes is None else edge_score(layer, attributes, call.num_edges, of_source)
    if isinstance(extra, str):
        return None

    def run() -> Tensor:
        operands = (graph, source.to(dtype), of_source, of_target, layer.negative_slope)
        score = None if extra is None else extra()
        mask = (
            dropout_factors(layer, graph, of_source.to(dtype)) if layer.training and layer.dropout else None
        )
        if not pending.asked:
            return gat(*operands, edge_score=score, edge_mask=mask, backend=call.backend)
        out, weights = gat(
            *operands, edge_score=score, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        # A copy, as below: the backward pass reads the weights, and their asker may write to them.
        pending.weights = weights.clone()
        return out

    return AttentionTask(
        "GAT, fused" + _WEIGHTS[pending.asked],
        "sum",
        graph,
        source,
        run,
        "gat",
        has_edges=extra is not None,
        dtype=dtype,
    )


def _fused_gatv2(
    call: Propagation, pending: Pending, x: tuple[Tensor | None, Tensor | None], graph: Graph
) -> AttentionTask | None:
    layer = call.layer
    source, target = x
    if source is None or target is None or not _can_fuse(call, pending, {"x", "edge_attr"}):
        return None
    given = pending.operands["x"]
    if type(given) is not tuple or len(given) != 2 or given[0] is not x[0] or given[1] is not x[1]:
        return None
    if (
        target.shape != (graph.num_dst, *source.shape[1:])
        or layer.att.shape != (1, *source.shape[1:])
        or source.dtype is not target.dtype
        or layer.att.device != source.device
    ):
        return None
    dtype = layer.att.dtype if source.is_cpu else widened(source, layer.att.dtype)
    if torch.promote_types(source.dtype, dtype) is not dtype:
        return None
    attributes = pending.operands["edge_attr"]
    edge = None if attributes is None else edge_rows(layer, attributes, call.num_edges, layer.att.to(dtype))
    if isinstance(edge, str):
        return None

    def run() -> Tensor:
        wide = source.to(dtype)
        ends = (wide, wide if target is source else target.to(dtype))
        operands = (graph, *ends, layer.att[0], layer.negative_slope)
        features = None if edge is None else edge()
        mask = dropout_factors(layer, graph, wide) if layer.training and layer.dropout else None
        if not pending.asked:
            return gatv2(*operands, edge=features, edge_mask=mask, backend=call.backend)
        out, weights = gatv2(
            *operands, edge=features, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        # A copy, as below: the backward pass reads the weights, and their asker may write to them.
        pending.weights = weights.clone()
        return out

    return AttentionTask(
        "GATv2, fused" + _WEIGHTS[pending.asked],
        "sum",
        graph,
        source,
        run,
        "gatv2",
        has_edges=edge is not None,
        dtype=dtype,
    )


def _transformer(call: Propagation) -> AttentionTask | str:
    layer = call.layer
    query, key, value = (call.operands[name] for name in ("query", "key", "value"))
    reason = dtypes_reason(call, 3, query, key, value)
    if reason is not None:
        return reason
    if call.reduce != "sum":
        return "its aggregation is not a sum"
    sending = call.sending
    for tensor, end in ((query, 1 - sending), (key, sending), (value, sending)):
        if not fits(call.sizes, end, tensor.size(0)) or tensor.shape[1:] != key.shape[1:]:
            return LEFT_TO_PYG
    if layer.node_dim != 0 or key.shape[1:] != (layer.heads, layer.out_channels):
        return LEFT_TO_PYG
    edge = edge_rows(layer, call.operands["edge_attr"], call.num_edges, key, widen_vectors=False)
    if isinstance(edge, str):
        return edge
    if layer.lin_edge is not None and edge is None:
        return LEFT_TO_PYG
    graph = call.graph(key.size(0))
    if graph is None:
        return OUT_OF_RANGE
    asked = not unasked(layer)
    dtype = widened(key, key.dtype)

    def run() -> Tensor:
        wide = [each.to(dtype) for each in (query, key, value)]
        operands = (graph, *wide, 1 / math.sqrt(layer.out_channels))
        features = None if edge is None else edge()
        mask = dropout_factors(layer, graph, wide[1]) if layer.training and layer.dropout else None
        if not asked:
            return attention(*operands, edge=features, edge_mask=mask, backend=call.backend)
        out, weights = attention(
            *operands, edge=features, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        layer._alpha = weights.clone()
        return out

    form = "dot-product attention, fused" + _WEIGHTS[asked]
    return AttentionTask(form, "sum", graph, value, run, "attention", has_edges=edge is not None, dtype=dtype)


def _agnn(call: Propagation) -> AttentionTask | str:
    layer, x, direction = call.layer, call.operands["x"], call.operands["x_norm"]
    reason = dtypes_reason(call, 2, x, direction, layer.beta)
    if reason is not None:
        return reason
    graph = _square(call, x)
    if isinstance(graph, str):
        return graph
    if call.reduce != "sum" or direction.shape != x.shape or layer.beta.numel() != 1:
        return LEFT_TO_PYG
    lone = direction.unsqueeze(1)

    def run() -> Tensor:
        query = lone * layer.beta
        return attention(graph, query, lone, x.unsqueeze(1), 1.0, backend=call.backend).squeeze(1)

    return AttentionTask("dot-product attention, fused", "sum", graph, x, run, "attention")


def _supergat(call: Propagation) -> AttentionTask | str:
    layer, x = call.layer, call.operands["x"]
    parameters = [att for att in (layer.att_l, layer.att_r) if att is not None]
    # Under autocast the features are narrower than these, which widen the messages.
    dtype = torch.promote_types(x.dtype, parameters[0].dtype) if parameters else x.dtype
    reason = dtypes_reason(call, 3, x) or alike_reason(x, dtype, parameters)
    if reason is not None:
        return reason
    dtype = widened(x, dtype)
    graph = _square(call, x)
    if isinstance(graph, str):
        return graph
    if x.shape[1:] != (layer.heads, layer.out_channels) or layer.node_dim != 0:
        return LEFT_TO_PYG
    sending = call.sending

    def run() -> Tensor:
        wide = x.to(dtype)
        score = sddmm(graph, wide, wide, backend=call.backend)
        if layer.attention_type == "MX":
            of_source, of_target = (wide * layer.att_l).sum(-1), (wide * layer.att_r).sum(-1)
            ends = of_source.index_select(0, call.ends(sending)) + of_target.index_select(
                0, call.ends(1 - sending)
            )
            score = ends * score.sigmoid()
        else:
            score = score / math.sqrt(layer.out_channels)
        weight = edge_softmax(graph, leaky_relu(score, layer.negative_slope), backend=call.backend)
        weight = dropout(weight, p=layer.dropout, training=layer.training)
        return reduce_rows(graph, wide, weight=weight, reduce=call.reduce, backend=call.backend)

    return AttentionTask("source * softmax of scores for each head", call.reduce, graph, x, run)


def _fa(call: Propagation) -> AttentionTask | str:
    layer, x, edge_weight = call.layer, call.operands["x"], call.operands["edge_weight"]
    ends = pair_of(call, "alpha", dims=2)
    if isinstance(ends, str):
        return ends
    of_source, of_target = ends
    if not is_feature(call, x, 2) or of_source is None or of_target is None or layer.node_dim not in (-2, 0):
        return LEFT_TO_PYG
    graph = _square(call, x)
    if isinstance(graph, str):
        return graph
    edges = call.num_edges
    if not is_feature(call, edge_weight, 1) or edge_weight.size(0) != edges or of_source.size(1) != 1:
        return LEFT_TO_PYG

    def run() -> Tensor:
        at_source = of_source.index_select(0, call.ends(call.sending))
        at_target = of_target.index_select(0, call.ends(1 - call.sending))
        layer._alpha = (at_source + at_target).tanh().squeeze(-1)
        weight = dropout(layer._alpha, p=layer.dropout, training=layer.training) * edge_weight
        return reduce_rows(graph, x, weight=weight, reduce=call.reduce, backend=call.backend)

    return AttentionTask("source * tanh of scores * weight", call.reduce, graph, x, run)


_RECIPES: dict[str, Callable[[Propagation], AttentionTask | str]] = {
    "weights": _of_pending,
    "transformer": _transformer,
    "agnn": _agnn,
    "supergat": _supergat,
    "fa": _fa,
    "hgt": attention_typed.hgt,
    "eg": several_reductions.eg,
    "rgat": attention_relational.rgat,
    "heat": attention_heat.heat,
}
_FUSED = {"gat": _fused_gat, "gatv2": _fused_gatv2}


def _square(call: Propagation, x: Tensor) -> Graph | str:
    """The graph where one tensor has the features of both ends."""
    if not fits(call.sizes, 0, x.size(0)) or not fits(call.sizes, 1, x.size(0)):
        return LEFT_TO_PYG
    return call.graph(x.size(0)) or OUT_OF_RANGE


def _can_fuse(call: Propagation, pending: Pending, names: set[str]) -> bool:
    return (
        call.reduce == "sum"
        and pending.edge_index is call.edge_index
        and pending.operands.keys() == names
        and call.num_edges > 0
    )
