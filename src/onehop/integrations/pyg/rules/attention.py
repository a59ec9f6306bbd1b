"""Messages of attention: one operator if it fits, else a weighted sum for each head.

Rules may compute one number for each edge and head, but no feature row for each edge.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu

from onehop.integrations.pyg.admit import BOTH, GIVEN, Pair, PerEdge, Rows, alike, is_feature
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.edges import SOURCE, TARGET
from onehop.integrations.pyg.leave import LEFT_TO_PYG, TOO_SMALL, Leave, need
from onehop.integrations.pyg.pending import Pending, unasked
from onehop.integrations.pyg.rules.edge_features import edge_rows, edge_score
from onehop.integrations.pyg.rules.table import rule
from onehop.ops import edge_softmax, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, widened

SCORED = "source * softmax of scores for each head"


@rule("GATConv", "GATv2Conv", divides=True, few=True, x=Pair(3), alpha=GIVEN)
def weights_of_heads(call: Call, x: tuple[Tensor | None, Tensor | None], alpha: Any) -> Plan:
    """GATConv and GATv2Conv: the sources' features times the weights of the heads."""
    source, edges = x[0], call.edges
    if source is None:
        raise Leave(LEFT_TO_PYG)
    if call.layer.node_dim != 0:
        raise Leave("node_dim is not 0")
    if edges.is_part:
        pending = type(alpha) is Pending and not alpha.asked
        need(pending, "its attention weights are made outside, or returned")
    if type(alpha) is Pending:
        fused, names = _FUSED[alpha.kind]
        try:
            if (
                call.reduce != "sum"
                or alpha.edge_index is not edges.edge_index
                or alpha.operands.keys() != names
            ):
                raise Leave(LEFT_TO_PYG)
            if edges.count == 0 and not edges.is_part:
                raise Leave(LEFT_TO_PYG)
            return fused(call, alpha, source, x[1])
        except Leave:
            if edges.is_part or edges.is_traced or edges.is_few:
                raise
            alpha = alpha.compute()
    fits = is_feature(call, alpha, 2) and alpha.shape == (edges.count, source.size(1))
    need(fits, "the weights are not one number an edge and head")
    need(not edges.is_few, TOO_SMALL)
    graph = edges.graph()

    def run() -> Tensor:
        return reduce_rows(graph, source, weight=alpha, reduce=call.reduce, backend=call.backend)

    return Plan(
        "source * weight for each head, weights by PyG", call.reduce, graph, source, run, backend=call.backend
    )


def _gat(call: Call, pending: Pending, source: Tensor, target: Tensor | None) -> Plan:
    layer, operands = call.layer, pending.operands
    num_src, num_dst = call.edges.counts()
    scores = operands["alpha"]
    need(operands["size"] == call.operands.get("size") and type(scores) is tuple and len(scores) == 2)
    of_source, of_target = scores
    heads = source.size(1)
    if of_target is None:
        of_target = of_source.new_zeros(num_dst, heads)
    dtype = of_source.dtype
    for score, rows in ((of_source, num_src), (of_target, num_dst)):
        need(is_feature(call, score, 2) and score.shape == (rows, heads) and score.dtype is dtype)
    dtype = widened(source, dtype)
    # Under autocast, the scores have a wider dtype than the features, and the messages get the wider dtype.
    need(torch.promote_types(source.dtype, dtype) is dtype)
    features = operands["edge_attr"]
    extra = None if features is None else edge_score(layer, features, call.edges.count, of_source)
    return call.fused(
        "gat",
        "GAT, fused",
        source,
        dtype,
        lambda: (source.to(dtype), of_source, of_target, layer.negative_slope),
        {} if extra is None else {"edge_score": extra},
        pending.keep if pending.asked else None,
    )


def _gatv2(call: Call, pending: Pending, source: Tensor, target: Tensor | None) -> Plan:
    layer = call.layer
    pair = pending.operands["x"]
    same = type(pair) is tuple and len(pair) == 2 and pair[0] is source and pair[1] is target
    if target is None or not same:
        raise Leave(LEFT_TO_PYG)
    rows, shape, att = call.edges.sizes[1 - call.edges.sending], source.shape[1:], layer.att
    fits = target.shape == (rows, *shape) and source.dtype is target.dtype
    if not fits or att.shape != (1, *shape) or att.device != source.device:
        raise Leave(LEFT_TO_PYG)
    dtype = layer.att.dtype if source.is_cpu else widened(source, layer.att.dtype)
    if torch.promote_types(source.dtype, dtype) is not dtype:
        raise Leave(LEFT_TO_PYG)
    features = pending.operands["edge_attr"]
    edge = None if features is None else edge_rows(layer, features, call.edges.count, layer.att.to(dtype))

    def operands() -> Any:
        wide = source.to(dtype)
        return wide, wide if target is source else target.to(dtype), layer.att[0], layer.negative_slope

    keep = pending.keep if pending.asked else None
    return call.fused(
        "gatv2", "GATv2, fused", source, dtype, operands, {} if edge is None else {"edge": edge}, keep
    )


# For each kind of weights: the fused plan, and the operands that it needs from ``edge_updater``.
_FUSED = {"gat": (_gat, {"alpha", "edge_attr", "size"}), "gatv2": (_gatv2, {"x", "edge_attr"})}


@rule(
    "TransformerConv",
    divides=True,
    few=True,
    first="key",
    query=Rows(3, TARGET),
    key=Rows(3, SOURCE),
    value=Rows(3, SOURCE),
    edge_attr=GIVEN,
)
def transformer(call: Call, query: Tensor, key: Tensor, value: Tensor, features: Any) -> Plan:
    """TransformerConv: dot products of queries and keys."""
    layer = call.layer
    alike(query, query.dtype, key, value)
    need(call.reduce == "sum", "its aggregation is not a sum")
    shape = (layer.heads, layer.out_channels)
    need(query.shape[1:] == key.shape[1:] == value.shape[1:] == shape)
    edge = edge_rows(layer, features, call.edges.count, key, widen_vectors=False)
    need(edge is not None or layer.lin_edge is None)
    dtype = widened(key, key.dtype)

    def operands() -> Any:
        return *(tensor.to(dtype) for tensor in (query, key, value)), 1 / math.sqrt(layer.out_channels)

    def keep(weights: Tensor) -> None:
        layer._alpha = weights

    form = "dot-product attention, fused"
    note = None if call.edges.is_part or call.edges.is_traced or unasked(layer) else keep
    return call.fused("attention", form, value, dtype, operands, {} if edge is None else {"edge": edge}, note)


@rule("AGNNConv", x=Rows(2, BOTH), x_norm=GIVEN)
def agnn(call: Call, x: Tensor, direction: Any) -> Plan:
    """AGNNConv: dot products of normalised features."""
    layer = call.layer
    alike(x, x.dtype, direction, layer.beta)
    need(call.reduce == "sum" and direction.shape == x.shape and layer.beta.numel() == 1)
    lone = direction.unsqueeze(1)

    def operands() -> Any:
        return lone * layer.beta, lone, x.unsqueeze(1), 1.0

    return call.fused("attention", "dot-product attention, fused", x, x.dtype, operands, {})


@rule("SuperGATConv", needs=("get_attention",), x=Rows(3, BOTH))
def supergat(call: Call, x: Tensor) -> Plan:
    """SuperGATConv: scaled dot products of features, or GAT's scores times a sigmoid of the products."""
    layer, edges, backend = call.layer, call.edges, call.backend
    parameters = [att for att in (layer.att_l, layer.att_r) if att is not None]
    # Under autocast, the parameters have a wider dtype than the features, and the messages get the wider
    # dtype.
    dtype = torch.promote_types(x.dtype, parameters[0].dtype) if parameters else x.dtype
    alike(x, dtype, *parameters)
    dtype = widened(x, dtype)
    need(x.shape[1:] == (layer.heads, layer.out_channels))
    graph, sending = edges.graph(), edges.sending

    def run() -> Tensor:
        wide = x.to(dtype)
        score = sddmm(graph, wide, wide, backend=backend)
        if layer.attention_type == "MX":
            of_source, of_target = (wide * layer.att_l).sum(-1), (wide * layer.att_r).sum(-1)
            at_source = of_source.index_select(0, edges.ends(sending))
            ends = at_source + of_target.index_select(0, edges.ends(1 - sending))
            score = ends * score.sigmoid()
        else:
            score = score / math.sqrt(layer.out_channels)
        weight = edge_softmax(graph, leaky_relu(score, layer.negative_slope), backend=backend)
        weight = dropout(weight, p=layer.dropout, training=layer.training)
        return reduce_rows(graph, wide, weight=weight, reduce=call.reduce, backend=backend)

    return Plan(SCORED, call.reduce, graph, x, run, backend=backend)


@rule("FAConv", x=Rows(2, BOTH), alpha=Pair(2), edge_weight=PerEdge(1))
def fa(call: Call, x: Tensor, scores: tuple[Tensor | None, Tensor | None], edge_weight: Tensor) -> Plan:
    """FAConv: the hyperbolic tangent of scores of both ends, times the edge's weight."""
    layer, edges = call.layer, call.edges
    of_source, of_target = scores
    if of_source is None or of_target is None:
        raise Leave(LEFT_TO_PYG)
    need(of_source.size(1) == 1)
    graph, sending = edges.graph(), edges.sending

    def run() -> Tensor:
        at_source = of_source.index_select(0, edges.ends(sending))
        at_target = of_target.index_select(0, edges.ends(1 - sending))
        layer._alpha = (at_source + at_target).tanh().squeeze(-1)
        weight = dropout(layer._alpha, p=layer.dropout, training=layer.training) * edge_weight
        return reduce_rows(graph, x, weight=weight, reduce=call.reduce, backend=call.backend)

    form = "source * tanh of scores * weight"
    return Plan(form, call.reduce, graph, x, run, backend=call.backend)


@rule("HGTConv", first="k", k=Rows(3, SOURCE), q=Rows(3, TARGET), v=Rows(3, SOURCE), edge_attr=PerEdge(2))
def hgt(call: Call, key: Tensor, query: Tensor, value: Tensor, factor: Tensor) -> Plan:
    """HGTConv: the softmax of dot products of queries and keys times a factor of the edge's type."""
    layer, backend = call.layer, call.backend
    alike(query, query.dtype, key, value)
    heads, columns = key.shape[1:]
    need(query.shape[1:] == value.shape[1:] == key.shape[1:] and call.reduce == "sum")
    need(heads == layer.heads and heads * columns == layer.out_channels and factor.size(1) == heads)
    need(factor.dtype is key.dtype or autocasts(key))
    # Under autocast, the factors have a wider dtype than the keys, and scores and messages get the wider
    # dtype.
    dtype = torch.promote_types(widened(key, key.dtype), factor.dtype)
    graph = call.edges.graph()

    def run() -> Tensor:
        wide = [tensor.to(dtype) for tensor in (query, key, value)]
        score = sddmm(graph, *wide[:2], backend=backend) * factor / math.sqrt(columns)
        weight = edge_softmax(graph, score, backend=backend)
        return reduce_rows(graph, wide[2], weight=weight, reduce="sum", backend=backend).flatten(1)

    return Plan(SCORED, "sum", graph, value, run, dtype=dtype, backend=backend)
