"""HypergraphConv: attention between nodes and hyperedges from numbers of both, and its second edges kept.

PyG gathers the features of both ends of every entry, side by side, to multiply them by a vector. Each half
of that product depends on one end alone, so it is computed for nodes and for hyperedges. The turned entries,
over which PyG propagates back to the nodes, are a new tensor in every call of PyG's; here they are kept, so
that their graph is made once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import dropout, leaky_relu
from torch_geometric.experimental import is_experimental_mode_enabled
from torch_geometric.nn import HypergraphConv
from torch_geometric.utils import scatter

from onehop.integrations import session
from onehop.integrations.pyg.edges.derived import can_remember, rewritten
from onehop.integrations.pyg.edges.graphs import graph_of
from onehop.integrations.pyg.edges.sizes import is_too_small
from onehop.integrations.pyg.layer import is_left_out, layer_reason, record_of
from onehop.ops import edge_softmax
from onehop.ops.contexts import autocasts, context_reason, wraps

_DTYPES = (torch.float32, torch.float64)
_PLAIN = (Tensor, Parameter)


def forward(
    theirs: Callable[..., Any],
    layer: Any,
    x: Any,
    hyperedge_index: Any,
    hyperedge_weight: Any = None,
    hyperedge_attr: Any = None,
    num_edges: int | None = None,
) -> Tensor | None:
    """HypergraphConv's ``forward``, with attention from numbers of both ends; None if PyG's code has to run.

    Args:
        theirs: PyG's method, and what it gets:
        layer: The HypergraphConv.
        x: [N, in_channels], the nodes' features.
        hyperedge_index: [2, E]: nodes above hyperedges.
        hyperedge_weight: [hyperedges], or None for ones.
        hyperedge_attr: [hyperedges, in_channels], for attention; else None.
        num_edges: Number of hyperedges; None means one more than the largest in ``hyperedge_index``.
    """
    entries, weight, attributes = hyperedge_index, hyperedge_weight, hyperedge_attr
    if context_reason() is not None or not _is_plain(layer) or not _are_entries(entries):
        return None
    if not _are_features(x, layer) or (layer.use_attention and not _are_features(attributes, layer)):
        return None
    if is_too_small(entries, None, layer.heads * layer.out_channels) or not entries.size(1):
        return None
    count = int(entries[1].max()) + 1 if num_edges is None else num_edges
    if type(count) is not int or (layer.use_attention and attributes.size(0) < count):
        return None
    if weight is not None and not _are_weights(weight, x, count):
        return None
    nodes = x.size(0)
    (turned,) = rewritten(entries, "turned", lambda: (entries.flip(0),))
    graph, back = graph_of(entries, nodes, count, True), graph_of(turned, count, nodes, True)
    if graph is None or back is None:
        return None
    x = layer.lin(x)
    alpha = None
    if layer.use_attention:
        shape = (-1, layer.heads, layer.out_channels)
        x, hyperedges = x.view(shape), layer.lin(attributes).view(shape)
        of_nodes, of_hyperedges = layer.att.split(layer.out_channels, -1)
        score = (x * of_nodes).sum(-1).index_select(0, entries[0])
        score = score + (hyperedges * of_hyperedges).sum(-1).index_select(0, entries[1])
        score = leaky_relu(score, layer.negative_slope)
        # The turned entries are in the same order.
        alpha = edge_softmax(graph if layer.attention_mode == "node" else back, score)
        alpha = dropout(alpha, p=layer.dropout, training=layer.training)
    weight = x.new_ones(count) if weight is None else weight
    of_nodes = _inverse(scatter(weight[entries[1]], entries[0], 0, dim_size=nodes, reduce="sum"))
    of_hyperedges = _inverse(graph.in_degrees.to(x.dtype))
    out: Tensor = layer.propagate(entries, x=x, norm=of_hyperedges, alpha=alpha, size=(nodes, count))
    out = layer.propagate(turned, x=out, norm=of_nodes, alpha=alpha, size=(count, nodes))
    out = out.view(-1, layer.heads * layer.out_channels) if layer.concat else out.mean(dim=1)
    if layer.bias is not None:
        out = out + layer.bias
    return out


def _is_plain(layer: Any) -> bool:
    """Return whether the layer is PyG's, as it is set up now."""
    kind = type(layer)
    record = record_of(layer)
    return (
        record is not None
        and kind.message is HypergraphConv.message
        and record.block_reason is None
        and not is_left_out(kind)
        and layer_reason(layer, record.fuses) is None
        and layer.flow == "source_to_target"
        and not (session.now.backend or session.now.machine)
        # PyG requires the number of hyperedges then.
        and not is_experimental_mode_enabled("disable_dynamic_shapes")
    )


def _are_features(x: Any, layer: Any) -> bool:
    """Return whether features are plain numbers of the parameters' dtype, one row each."""
    return (
        type(x) in _PLAIN
        and x.dim() == 2
        and x.is_cpu
        and x.layout is torch.strided
        and x.dtype in _DTYPES
        and all(parameter.dtype is x.dtype and parameter.is_cpu for parameter in layer.parameters())
        and x.size(1) == layer.in_channels
        and not wraps(x, *layer.parameters())
        and not autocasts(x)
    )


def _are_weights(weight: Any, x: Tensor, count: int) -> bool:
    """Return whether weights are plain numbers of the features' dtype, one a hyperedge."""
    return (
        type(weight) in _PLAIN
        and weight.shape == (count,)
        and weight.is_cpu
        and weight.layout is torch.strided
        and weight.dtype is x.dtype
        and not wraps(weight)
    )


def _are_entries(entries: Any) -> bool:
    """Return whether the entries of the incidence matrix are a tensor that can be recognised."""
    return (
        type(entries) is Tensor
        and entries.dtype is torch.int64
        and entries.layout is torch.strided
        and entries.is_cpu
        and entries.dim() == 2
        and entries.size(0) == 2
        and can_remember(entries, least=0)
    )


def _inverse(sums: Tensor) -> Tensor:
    """One over each, and 0 where that is infinite."""
    inverse = 1.0 / sums
    inverse[inverse == float("inf")] = 0
    return inverse
