"""The fast paths of heterogeneous attention: HANConv and HGTConv, whose messages hold the softmax themselves.

As in :mod:`onehop.integrations.pyg.attention`, what PyG would complain about is refused.
"""

import math

import torch
from torch import Tensor

from onehop.integrations.pyg.attention_operands import (
    alike_reason,
    dropout_factors,
    dtypes_reason,
    is_feature,
    pair_of,
)
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.ops import edge_softmax, gat, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, widened


def han(call: Propagation) -> AttentionTask | str:
    """HANConv over the edges of one type: GAT's attention, whose scores are added in the message."""
    layer = call.layer
    x, scores = pair_of(call, "x"), pair_of(call, "alpha", dims=2)
    if isinstance(x, str):
        return x
    if isinstance(scores, str):
        return scores
    source, (of_source, of_target) = x[0], scores
    if source is None or of_source is None or of_target is None:
        return LEFT_TO_PYG
    if call.reduce != "sum" or layer.node_dim != 0 or call.num_edges == 0:
        return LEFT_TO_PYG
    heads, columns = source.shape[1:]
    if heads != layer.heads or heads * columns != layer.out_channels:
        return LEFT_TO_PYG
    dtype = of_source.dtype
    # Under autocast the scores are wider than the features, and widen the messages.
    if torch.promote_types(source.dtype, dtype) is not dtype:
        return "its scores are narrower than its features"
    reason = alike_reason(of_source, dtype, (of_target,))
    if reason is not None:
        return reason
    dtype = widened(source, dtype)
    if of_source.size(1) != heads or of_target.size(1) != heads:
        return LEFT_TO_PYG
    graph = call.graph(source.size(0))
    if graph is None:
        return OUT_OF_RANGE

    def run() -> Tensor:
        mask = (
            dropout_factors(layer, graph, of_source.to(dtype)) if layer.training and layer.dropout else None
        )
        operands = (graph, source.to(dtype), of_source, of_target, layer.negative_slope)
        return gat(*operands, edge_mask=mask, backend=call.backend).flatten(1)

    return AttentionTask("GAT, fused", "sum", graph, source, run, "gat", dtype=dtype)


def hgt(call: Propagation) -> AttentionTask | str:
    """HGTConv: dot products of queries and keys, times a factor of the edge's type, and their softmax."""
    layer = call.layer
    query, key, value, factor = (call.operands[name] for name in ("q", "k", "v", "edge_attr"))
    reason = dtypes_reason(call, 3, query, key, value)
    if reason is not None:
        return reason
    for tensor, end in ((query, 1 - call.sending), (key, call.sending), (value, call.sending)):
        if not fits(call.sizes, end, tensor.size(0)) or tensor.shape[1:] != key.shape[1:]:
            return LEFT_TO_PYG
    heads, columns = key.shape[1:]
    if (
        call.reduce != "sum"
        or layer.node_dim != 0
        or heads != layer.heads
        or heads * columns != layer.out_channels
        or not is_feature(call, factor, 2)
        or factor.shape != (call.num_edges, heads)
        or not (factor.dtype is key.dtype or autocasts(key))
    ):
        return LEFT_TO_PYG
    # Under autocast the factors are wider than the keys, and widen scores and messages.
    dtype = torch.promote_types(widened(key, key.dtype), factor.dtype)
    graph = call.graph(key.size(0))
    if graph is None:
        return OUT_OF_RANGE

    def run() -> Tensor:
        wide = [each.to(dtype) for each in (query, key, value)]
        score = sddmm(graph, *wide[:2], backend=call.backend) * factor / math.sqrt(columns)
        weight = edge_softmax(graph, score, backend=call.backend)
        return reduce_rows(graph, wide[2], weight=weight, reduce="sum", backend=call.backend).flatten(1)

    return AttentionTask("source * softmax of scores for each head", "sum", graph, value, run, dtype=dtype)
