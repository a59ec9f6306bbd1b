"""The fast path of HGTConv's message, which holds the softmax itself.

As in :mod:`onehop.integrations.pyg.attention`, what PyG would complain about is refused.
"""

import math

import torch
from torch import Tensor

from onehop.integrations.pyg.attention_operands import dtypes_reason, is_feature
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.ops import edge_softmax, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, widened


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
