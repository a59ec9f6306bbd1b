"""HypergraphConv: attention scores from one number per node and per hyperedge, and cached reversed entries.

PyG gathers the features of both ends of every entry, joins them, and multiplies them by a vector. Each half
of the product depends on one end only, so here it is computed once for each node and hyperedge. PyG
propagates back to the nodes over the reversed entries, which are a new tensor in every call; here they are
kept, so that their graph is made once.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import dropout, leaky_relu
from torch_geometric.experimental import is_experimental_mode_enabled
from torch_geometric.nn import HypergraphConv
from torch_geometric.utils import scatter

from onehop.integrations.pyg.edges.kept import graph_of, rewritten
from onehop.integrations.pyg.edges.sizes import are_tiny, is_too_small
from onehop.integrations.pyg.layer import with_own_forward
from onehop.integrations.pyg.leave import (
    OUT_OF_RANGE,
    TOO_SMALL,
    Leave,
    are_dense,
    are_features,
    are_numbers,
    leave_if,
    need,
)
from onehop.ops import edge_softmax


def forward(
    theirs: Callable[..., Any],
    layer: Any,
    x: Any,
    hyperedge_index: Any,
    hyperedge_weight: Any = None,
    hyperedge_attr: Any = None,
    num_edges: int | None = None,
) -> Tensor | None:
    """Computes HypergraphConv's ``forward``; None if there are so few entries that PyG is as fast.

    Args:
        theirs: PyG's method.
        layer: The layer.
        x: [N, in_channels], the nodes' features.
        hyperedge_index: [2, E]: nodes in the first row, hyperedges in the second.
        hyperedge_weight: [hyperedges]; None means 1.
        hyperedge_attr: [hyperedges, in_channels], for attention; None without attention.
        num_edges: Number of hyperedges; None means one more than the largest number in ``hyperedge_index``.

    Raises:
        Leave: PyG's code has to run.
    """
    entries, weight, attributes = hyperedge_index, hyperedge_weight, hyperedge_attr
    if are_tiny(entries):
        return None
    need(not is_too_small(entries, None, layer.heads * layer.out_channels), TOO_SMALL)
    record = with_own_forward(layer, HypergraphConv, "message", "aggregate")
    leave_if(record.block_reason)
    # In this experimental mode, PyG requires the number of hyperedges.
    need(not is_experimental_mode_enabled("disable_dynamic_shapes"))
    need(are_numbers(entries) and entries.dim() == 2 and entries.size(0) == 2 and entries.size(1) > 0)
    for features in (x, attributes) if layer.use_attention else (x,):
        need(are_features(features, *layer.parameters()) and features.size(1) == layer.in_channels)
    count = int(entries[1].max()) + 1 if num_edges is None else num_edges
    need(type(count) is int and not (layer.use_attention and attributes.size(0) < count))
    need(weight is None or (are_dense(weight, dtype=x.dtype) and weight.shape == (count,)))
    nodes = x.size(0)
    (turned,) = rewritten(entries, "turned", lambda: (entries.flip(0),))
    graph, back = graph_of(entries, nodes, count, True), graph_of(turned, count, nodes, True)
    if graph is None or back is None:
        raise Leave(OUT_OF_RANGE)
    x = layer.lin(x)
    alpha = None
    if layer.use_attention:
        shape = (-1, layer.heads, layer.out_channels)
        x, hyperedges = x.view(shape), layer.lin(attributes).view(shape)
        of_nodes, of_hyperedges = layer.att.split(layer.out_channels, -1)
        score = (x * of_nodes).sum(-1).index_select(0, entries[0])
        score = score + (hyperedges * of_hyperedges).sum(-1).index_select(0, entries[1])
        score = leaky_relu(score, layer.negative_slope)
        # The reversed entries are in the same order, so alpha fits both graphs.
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


def _inverse(sums: Tensor) -> Tensor:
    """Return the inverse of each number, or 0 if the inverse is infinite."""
    inverse = 1.0 / sums
    inverse[inverse == float("inf")] = 0
    return inverse
