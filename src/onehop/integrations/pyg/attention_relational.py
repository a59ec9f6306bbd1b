"""RGATConv: attention whose rows and scores are multiplied by a matrix of the edge's type.

PyG gathers a matrix for every edge. Here rows are multiplied for every pair of a type and a node that an edge
has, and scores are numbers of these pairs and of edges.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu

from onehop.integrations.pyg.attention_operands import alike_reason, dtypes_reason
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, fits
from onehop.integrations.pyg.edge_features import is_plain
from onehop.integrations.pyg.typed_edges import PairsOfEdges, pairs_of
from onehop.ops import edge_softmax
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, wraps

_FORM = "source W of its type * softmax for each head"
_MODES = (None, "additive", "scaled", "f-additive", "f-scaled")


def rgat(call: Propagation) -> AttentionTask | str:
    """RGATConv, with what it keeps of the weights until its ``forward`` has returned them."""
    layer = call.layer
    ends = _ends(call)
    if isinstance(ends, str):
        return ends
    source, target = ends
    reason = _layer_reason(call, source, target)
    if reason is not None:
        return reason
    extra = _score_of_features(layer, call.operands["edge_attr"], call.num_edges, source)
    if isinstance(extra, str):
        return extra
    edge_type = call.operands["edge_type"]
    if type(edge_type) is not Tensor or not edge_type.is_cpu:
        return LEFT_TO_PYG
    if edge_type.dtype is not torch.int64 or call.edges.dtype is not torch.int64:
        return "its edges or their types are not numbers of 64 bits"
    if edge_type.shape != (call.num_edges,) or wraps(edge_type):
        return LEFT_TO_PYG
    num_dst = call.sizes[1] if call.sizes[1] is not None else source.size(0)
    pairs = pairs_of(call.edges, edge_type, layer.num_relations, (source.size(0), num_dst))
    if pairs is None:
        return OUT_OF_RANGE

    def run() -> Tensor:
        matrices = _matrices(layer)
        values = pairs.sources.multiplied(source, matrices)
        keys = (values @ layer.k).index_select(0, pairs.sources.of_edges)
        # Products of the matrices with q are narrow: no row of a destination is multiplied by a whole matrix.
        queries = pairs.targets.multiplied(target, matrices @ layer.q)
        if not _is_finite(queries):
            # Infinities meet elsewhere in another order.
            queries = pairs.targets.multiplied(target, matrices) @ layer.q
        score = _score(layer, queries.index_select(0, pairs.targets.of_edges), keys, extra)
        graph = pairs.of_each if layer.attention_mechanism == "within-relation" else pairs.graph
        alpha = edge_softmax(graph, score, backend=call.backend)
        layer._alpha = alpha
        return layer.update(_reduced(call, pairs, values, alpha))  # type: ignore[no-any-return]

    return AttentionTask(_FORM, call.reduce, pairs.graph, source, run)


def _ends(call: Propagation) -> tuple[Tensor, Tensor] | str:
    """The features of sources and destinations; notes their numbers of rows as PyG does."""
    if call.known is not None:
        return "edge_index is a sparse matrix, for which PyG has its own code"
    if call.sending != 0:
        return "flow='target_to_source' exchanges the ends that its matrices multiply"
    x = call.operands["x"]
    pair = tuple(x) if isinstance(x, tuple | list) else (x, x)
    if len(pair) != 2:
        return LEFT_TO_PYG
    for end, tensor in enumerate(pair):
        reason = dtypes_reason(call, 2, tensor)
        if reason is not None:
            return reason
        if not fits(call.sizes, end, tensor.size(0)):
            return LEFT_TO_PYG
    return pair


def _layer_reason(call: Propagation, source: Tensor, target: Tensor) -> str | None:
    """Return why the layer, as it is set up, has no fast path over these features; None if it has."""
    layer = call.layer
    if not source.is_cpu or not call.edges.is_cpu:
        return "its types of edges are put in order on the CPU alone"
    if autocasts(source):
        return "autocast decides on the dtypes of its scores"
    if call.num_edges == 0:
        return "there are no edges"
    if layer.num_blocks is not None:
        return "its matrices are block-diagonal"
    if call.reduce not in ("sum", "mean"):
        return "messages that matrices of types multiply are reduced by sum and mean alone"
    if layer.mod not in _MODES or layer.node_dim != 0:
        return LEFT_TO_PYG
    if source.size(1) != layer.in_channels or target.size(1) != layer.in_channels:
        return LEFT_TO_PYG
    return alike_reason(source, source.dtype, (target, *layer.parameters()))


def _score_of_features(
    layer: Any, features: Any, edges: int, like: Tensor
) -> Callable[[], Tensor] | str | None:
    """The part [E, H * dim] of scores that comes from features of edges; None where there are none."""
    if features is None:
        return None
    linear = layer.lin_edge
    if linear is None:
        return LEFT_TO_PYG
    given = features.view(-1, 1) if isinstance(features, Tensor) and features.dim() == 1 else features
    if not isinstance(given, Tensor) or given.device != like.device or given.layout is not torch.strided:
        return "the edge features are not a plain tensor on the device of the nodes'"
    if given.dtype is not like.dtype or given.dim() != 2 or wraps(given):
        return "the edge features are of another kind than the nodes'"
    if not is_plain(linear):
        return "lin_edge, which its scores come from, has hooks or was replaced"
    if given.shape != (edges, linear.weight.size(1)):
        return LEFT_TO_PYG

    def score() -> Tensor:
        out: Tensor = given @ (linear.weight.t() @ layer.e)
        if not _is_finite(out):
            out = linear(given) @ layer.e
        return out

    return score


def _is_finite(numbers: Tensor) -> bool:
    return bool(numbers.isfinite().all())


def _matrices(layer: Any) -> Tensor:
    """[R, in, H * out]: the matrix of each type."""
    if layer.num_bases is None:
        return layer.weight  # type: ignore[no-any-return]
    shape = (layer.num_relations, layer.in_channels, layer.heads * layer.out_channels)
    mixed: Tensor = torch.matmul(layer.att, layer.basis.view(layer.num_bases, -1)).view(shape)
    return mixed


def _score(layer: Any, queries: Tensor, keys: Tensor, extra: Callable[[], Tensor] | None) -> Tensor:
    """[E, H * dim]."""
    if layer.attention_mode == "additive-self-attention":
        score = queries + keys
        return leaky_relu(score if extra is None else score + extra(), layer.negative_slope)
    score = queries * keys
    return score if extra is None else score * extra()


def _reduced(call: Propagation, pairs: PairsOfEdges, values: Tensor, alpha: Tensor) -> Tensor:
    """[num_dst, H, out], or [num_dst, H, dim, out] of dot products: the weighted rows, modified."""
    layer, graph = call.layer, pairs.graph
    mod, of_heads = layer.mod, values.view(-1, layer.heads, layer.out_channels)
    additive = layer.attention_mode == "additive-self-attention"
    if mod == "f-additive":
        alpha = torch.where(alpha > 0, alpha + 1, alpha)
    elif mod == "f-scaled":
        degrees = graph.in_degrees.to(alpha.dtype).index_select(0, call.ends(1))
        alpha = alpha * degrees.unsqueeze(-1)
    elif mod is None and layer.training and layer.dropout > 0:
        alpha = dropout(alpha, p=layer.dropout, training=True)

    def aggregated(weight: Tensor | None) -> Tensor:
        return reduce_rows(graph, of_heads, weight=weight, reduce=call.reduce, backend=call.backend)

    if additive:
        out = aggregated(alpha)
    else:
        each = alpha.view(-1, layer.heads, layer.dim).unbind(-1)
        out = torch.stack([aggregated(weight) for weight in each], dim=2)
    if mod == "additive":
        plain = layer.w * aggregated(None)
        out = out + (plain if additive else plain.unsqueeze(2))
    elif mod == "scaled":
        degrees = graph.in_degrees.to(alpha.dtype).unsqueeze(-1)
        scale = layer.activation(degrees @ layer.l1 + layer.b1) @ layer.l2 + layer.b2
        out = out * scale.view(-1, *[1] * (out.dim() - 2), layer.out_channels)
    return out
