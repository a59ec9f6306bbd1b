"""RGATConv: attention whose rows and scores are multiplied by a matrix of the edge's type.

PyG gathers a matrix for every edge. Here a row is multiplied once for every pair of a type and a node that
occurs in an edge, and scores are computed from numbers of these pairs and of edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, leaky_relu

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import remembered
from onehop.integrations.pyg.admit import GIVEN, alike, backend, is_feature
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.edges import SOURCE, TARGET
from onehop.integrations.pyg.leave import OUT_OF_RANGE, Leave, need
from onehop.integrations.pyg.rules.edge_features import is_product
from onehop.integrations.pyg.rules.table import rule
from onehop.ops import edge_softmax
from onehop.ops.aggregate import reduce_rows
from onehop.ops.contexts import autocasts, wraps
from onehop.ops.typed import Pairs, pairs_of

_FORM = "source W of its type * softmax for each head"
_MODES = (None, "additive", "scaled", "f-additive", "f-scaled")


@dataclass(frozen=True, slots=True)
class PairsOfEdges:
    """The pairs of a type and a node at both ends of edges.

    Attributes:
        sources: The pairs at the sources.
        targets: The pairs at the destinations.
        graph: From the sources' pairs to the destinations, with the edges in the caller's order.
        of_each: From the sources' pairs to the destinations' pairs, with the edges in the caller's order.
    """

    sources: Pairs
    targets: Pairs
    graph: Graph
    of_each: Graph


def _pairs_of(edge_index: Tensor, edge_type: Tensor, types: int, size: tuple[int, int]) -> PairsOfEdges:
    """Return the pairs of edges, cached or new; raise :class:`Leave` for numbers out of range."""

    def make() -> PairsOfEdges:
        source, target = edge_index.unbind()
        sources = pairs_of("source", source, edge_type, size[0], types)
        targets = pairs_of("destination", target, edge_type, size[1], types)
        first = len(sources.nodes)
        to_nodes, to_pairs = (torch.stack([sources.of_edges, end]) for end in (target, targets.of_edges))
        return PairsOfEdges(
            sources,
            targets,
            Graph.from_edge_index(to_nodes, size=(first, size[1])),
            Graph.from_edge_index(to_pairs, size=(first, len(targets.nodes))),
        )

    try:
        return remembered(edge_index, edge_type, key=("pairs", types, size), make=make)
    except ArgumentError:
        raise Leave(OUT_OF_RANGE) from None


@rule("RGATConv", needs=("update",), listed=True, x=GIVEN, edge_type=GIVEN, edge_attr=GIVEN)
def rgat(call: Call, x: Any, edge_type: Any, features: Any) -> Plan:
    """RGATConv: attention by edge type; the layer keeps the weights until ``forward`` has returned them."""
    layer, edges = call.layer, call.edges
    need(edges.forwards, "flow='target_to_source' exchanges the ends that its matrices multiply")
    source, target = _ends(call, x)
    _check_layer(call, source, target)
    extra = _score_of_features(layer, features, edges.count, source)
    need(type(edge_type) is Tensor and edge_type.is_cpu)
    integers = edge_type.dtype is torch.int64 and edges.index.dtype is torch.int64
    need(integers, "its edges or their types are not numbers of 64 bits")
    need(edge_type.shape == (edges.count,) and not wraps(edge_type))
    pairs = _pairs_of(edges.index, edge_type, layer.num_relations, edges.counts())

    def run() -> Tensor:
        matrices = _matrices(layer)
        values = pairs.sources.multiplied(source, matrices)
        keys = (values @ layer.k).index_select(0, pairs.sources.of_edges)
        # The products of the matrices with q are narrow, so no destination's row is multiplied by a whole
        # matrix.
        queries = pairs.targets.multiplied(target, matrices @ layer.q)
        if not _is_finite(queries):
            # If values are infinite, another order of products gives other results.
            queries = pairs.targets.multiplied(target, matrices) @ layer.q
        score = _score(layer, queries.index_select(0, pairs.targets.of_edges), keys, extra)
        graph = pairs.of_each if layer.attention_mechanism == "within-relation" else pairs.graph
        alpha = edge_softmax(graph, score, backend=call.backend)
        layer._alpha = alpha
        return layer.update(_reduced(call, pairs, values, alpha))  # type: ignore[no-any-return]

    return Plan(_FORM, call.reduce, pairs.graph, source, run, backend=call.backend)


def _ends(call: Call, x: Any) -> tuple[Tensor, Tensor]:
    """Return the features of sources and destinations; note their numbers of rows as PyG does."""
    pair = tuple(x) if isinstance(x, tuple | list) else (x, x)
    need(len(pair) == 2)
    for end, tensor in enumerate(pair):
        dense = is_feature(call, tensor, 2)
        need(dense, "the features are no dense floating-point tensors of 2 dimensions where edge_index is")
        backend(tensor, call.edges, call.backend)
        call.edges.note(SOURCE if end == 0 else TARGET, tensor.size(0))
    return pair


def _check_layer(call: Call, source: Tensor, target: Tensor) -> None:
    """Raises :class:`Leave` if this layer instance has no fast path for these features."""
    layer = call.layer
    on_cpu = source.is_cpu and call.edges.is_cpu
    need(on_cpu, "its types of edges are put in order on the CPU alone")
    need(not autocasts(source), "autocast decides on the dtypes of its scores")
    need(call.edges.count > 0, "there are no edges")
    need(layer.num_blocks is None, "its matrices are block-diagonal")
    sums = call.reduce in ("sum", "mean")
    need(sums, "messages that matrices of types multiply are reduced by sum and mean alone")
    need(layer.mod in _MODES and layer.node_dim == 0)
    need(source.size(1) == target.size(1) == layer.in_channels)
    alike(source, source.dtype, target, *layer.parameters())


def _score_of_features(layer: Any, features: Any, edges: int, like: Tensor) -> Callable[[], Tensor] | None:
    """Return the part of scores, [E, H * dim], that comes from edge features; None without features."""
    if features is None:
        return None
    linear = layer.lin_edge
    need(linear is not None)
    matrix = features.view(-1, 1) if isinstance(features, Tensor) and features.dim() == 1 else features
    beside = isinstance(matrix, Tensor) and matrix.device == like.device and matrix.layout is torch.strided
    need(beside, "the edge features are not a plain tensor on the device of the nodes'")
    same = matrix.dtype is like.dtype and matrix.dim() == 2 and not wraps(matrix)
    need(same, "the edge features are of another kind than the nodes'")
    need(is_product(linear), "lin_edge, which its scores come from, has hooks or was replaced")
    need(matrix.shape == (edges, linear.weight.size(1)))

    def score() -> Tensor:
        out: Tensor = matrix @ (linear.weight.t() @ layer.e)
        if not _is_finite(out):
            out = linear(matrix) @ layer.e
        return out

    return score


def _is_finite(numbers: Tensor) -> bool:
    return bool(numbers.isfinite().all())


def _matrices(layer: Any) -> Tensor:
    """Return the matrix of each type, [R, in, H * out]."""
    if layer.num_bases is None:
        return layer.weight  # type: ignore[no-any-return]
    shape = (layer.num_relations, layer.in_channels, layer.heads * layer.out_channels)
    mixed: Tensor = torch.matmul(layer.att, layer.basis.view(layer.num_bases, -1)).view(shape)
    return mixed


def _score(layer: Any, queries: Tensor, keys: Tensor, extra: Callable[[], Tensor] | None) -> Tensor:
    """Return the scores, [E, H * dim]."""
    if layer.attention_mode == "additive-self-attention":
        score = queries + keys
        return leaky_relu(score if extra is None else score + extra(), layer.negative_slope)
    score = queries * keys
    return score if extra is None else score * extra()


def _reduced(call: Call, pairs: PairsOfEdges, values: Tensor, alpha: Tensor) -> Tensor:
    """Return the reduced weighted rows, [num_dst, H, out], or [num_dst, H, dim, out] for dot products."""
    layer, graph = call.layer, pairs.graph
    mod, of_heads = layer.mod, values.view(-1, layer.heads, layer.out_channels)
    additive = layer.attention_mode == "additive-self-attention"
    if mod == "f-additive":
        alpha = torch.where(alpha > 0, alpha + 1, alpha)
    elif mod == "f-scaled":
        degrees = graph.in_degrees.to(alpha.dtype).index_select(0, call.edges.ends(1))
        alpha = alpha * degrees.unsqueeze(-1)
    elif mod is None and layer.training and layer.dropout > 0:
        alpha = dropout(alpha, p=layer.dropout, training=True)

    def aggregated(weight: Tensor | None) -> Tensor:
        return reduce_rows(graph, of_heads, weight=weight, reduce=call.reduce, backend=call.backend)

    if additive:
        out = aggregated(alpha)
    else:
        weights = alpha.view(-1, layer.heads, layer.dim).unbind(-1)
        out = torch.stack([aggregated(weight) for weight in weights], dim=2)
    if mod == "additive":
        plain = layer.w * aggregated(None)
        out = out + (plain if additive else plain.unsqueeze(2))
    elif mod == "scaled":
        degrees = graph.in_degrees.to(alpha.dtype).unsqueeze(-1)
        scale = layer.activation(degrees @ layer.l1 + layer.b1) @ layer.l2 + layer.b2
        out = out * scale.view(-1, *[1] * (out.dim() - 2), layer.out_channels)
    return out
