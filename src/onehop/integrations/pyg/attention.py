"""The fast paths of attention layers: fused where that can be, else a weighted sum for each head.

Every recipe checks its operands as PyG would, and returns what is left to do. What PyG would complain about
is refused, so that PyG's own error appears. Numbers for each edge and head may be made, rows for each edge
not. Of a pair of operands, PyG takes the first for the sources and the second for the destinations, whatever
the flow.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import dropout, leaky_relu

from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.contexts import autocasts, in_older_vmap, is_wrapped, wraps
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import FLOATS, LEFT_TO_PYG, OUT_OF_RANGE, backend_reason, fits
from onehop.integrations.pyg.edge_features import edge_score, projected
from onehop.integrations.pyg.pending import Pending, unasked
from onehop.ops import attention, edge_softmax, gat, gatv2, sddmm
from onehop.ops.aggregate import reduce_rows
from onehop.ops.dropout import factors, serves

# Behind the form that ``explain`` shows, by whether the weights are asked for.
_WEIGHTS = ("", ", with weights")
_BY_PYG = "source * weight for each head, weights by PyG"


def prepare(kind: str, call: Propagation) -> AttentionTask | str:
    """Prepares a layer of this kind of attention; or returns why PyG has to run it."""
    task = _RECIPES[kind](call)
    if isinstance(task, AttentionTask):
        task.backend, layer = call.backend, call.layer
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
    x = _pair(call, "x")
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
    if not _is_feature(call, weights, 2) or weights.shape != (call.edges.size(1), source.size(1)):
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
        if not _is_feature(call, score, 2) or score.shape != (rows, heads) or score.dtype is not dtype:
            return None
    # Under autocast the scores are wider than the features, and widen the messages.
    if torch.promote_types(source.dtype, dtype) is not dtype:
        return None
    attributes = operands["edge_attr"]
    extra = None if attributes is None else edge_score(layer, attributes, call.edges.size(1), of_source)
    if isinstance(extra, str):
        return None

    def run() -> Tensor:
        operands = (graph, source.to(dtype), of_source, of_target, layer.negative_slope)
        score = None if extra is None else extra()
        mask = _drawn(layer, graph, of_source) if layer.training and layer.dropout else None
        if not pending.asked:
            return gat(*operands, edge_score=score, edge_mask=mask, backend=call.backend)
        out, weights = gat(
            *operands, edge_score=score, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        # A copy, as below: the backward pass reads the weights, and their asker may write to them.
        pending.weights = weights.clone()
        return out

    return AttentionTask("GAT, fused" + _WEIGHTS[pending.asked], "sum", graph, source, run, "gat")


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
        or torch.promote_types(source.dtype, layer.att.dtype) is not layer.att.dtype
        or layer.att.device != source.device
    ):
        return None
    dtype = layer.att.dtype
    attributes = pending.operands["edge_attr"]
    edge = None if attributes is None else projected(layer, attributes, call.edges.size(1), layer.att)
    if isinstance(edge, str):
        return None

    def run() -> Tensor:
        wide = source.to(dtype)
        ends = (wide, wide if target is source else target.to(dtype))
        operands = (graph, *ends, layer.att[0], layer.negative_slope)
        features = None if edge is None else edge()
        mask = _drawn(layer, graph, wide) if layer.training and layer.dropout else None
        if not pending.asked:
            return gatv2(*operands, edge=features, edge_mask=mask, backend=call.backend)
        out, weights = gatv2(
            *operands, edge=features, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        # A copy, as below: the backward pass reads the weights, and their asker may write to them.
        pending.weights = weights.clone()
        return out

    return AttentionTask("GATv2, fused" + _WEIGHTS[pending.asked], "sum", graph, source, run, "gatv2")


def _transformer(call: Propagation) -> AttentionTask | str:
    layer = call.layer
    query, key, value = (call.operands[name] for name in ("query", "key", "value"))
    reason = _dtypes_reason(call, 3, query, key, value)
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
    edge = projected(layer, call.operands["edge_attr"], call.edges.size(1), key, widen_vectors=False)
    if isinstance(edge, str):
        return edge
    if layer.lin_edge is not None and edge is None:
        return LEFT_TO_PYG
    graph = call.graph(key.size(0))
    if graph is None:
        return OUT_OF_RANGE
    asked = not unasked(layer)

    def run() -> Tensor:
        operands = (graph, query, key, value, 1 / math.sqrt(layer.out_channels))
        features = None if edge is None else edge()
        mask = _drawn(layer, graph, key) if layer.training and layer.dropout else None
        if not asked:
            return attention(*operands, edge=features, edge_mask=mask, backend=call.backend)
        out, weights = attention(
            *operands, edge=features, edge_mask=mask, return_attention_weights=True, backend=call.backend
        )
        layer._alpha = weights.clone()
        return out

    form = "dot-product attention, fused" + _WEIGHTS[asked]
    return AttentionTask(form, "sum", graph, value, run, "attention")


def _agnn(call: Propagation) -> AttentionTask | str:
    layer, x, direction = call.layer, call.operands["x"], call.operands["x_norm"]
    reason = _dtypes_reason(call, 2, x, direction, layer.beta)
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
    reason = _dtypes_reason(call, 3, x) or _alike_reason(x, dtype, parameters)
    if reason is not None:
        return reason
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
            ends = of_source.index_select(0, call.edges[sending]) + of_target.index_select(
                0, call.edges[1 - sending]
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
    ends = _pair(call, "alpha", dims=2)
    if isinstance(ends, str):
        return ends
    of_source, of_target = ends
    if not _is_feature(call, x, 2) or of_source is None or of_target is None or layer.node_dim not in (-2, 0):
        return LEFT_TO_PYG
    graph = _square(call, x)
    if isinstance(graph, str):
        return graph
    edges = call.edges.size(1)
    if not _is_feature(call, edge_weight, 1) or edge_weight.size(0) != edges or of_source.size(1) != 1:
        return LEFT_TO_PYG

    def run() -> Tensor:
        at_source = of_source.index_select(0, call.edges[call.sending])
        at_target = of_target.index_select(0, call.edges[1 - call.sending])
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
}
_FUSED = {"gat": _fused_gat, "gatv2": _fused_gatv2}


def _pair(call: Propagation, name: str, dims: int = 3) -> tuple[Tensor | None, Tensor | None] | str:
    """The features of sources and destinations; notes their numbers of rows as PyG does."""
    operand = call.operands[name]
    if type(operand) is not tuple or len(operand) != 2:
        return f"{name} is not a pair"
    for end, tensor in enumerate(operand):
        if tensor is None:
            continue
        if not _is_feature(call, tensor, dims):
            return f"the operands {name} {_unfit(call, dims)}"
        reason = backend_reason(tensor, call.backend) if call.backend or not tensor.is_cpu else None
        if reason is not None:
            return reason
        known = call.sizes[end]
        if known is None:
            call.sizes[end] = tensor.size(0)
        elif known != tensor.size(0):
            return LEFT_TO_PYG
    if call.sending == 1 and None not in call.sizes and call.sizes[0] != call.sizes[1]:
        return "bipartite features meet flow='target_to_source'"
    return operand


def _square(call: Propagation, x: Tensor) -> Graph | str:
    """The graph where one tensor has the features of both ends."""
    if not fits(call.sizes, 0, x.size(0)) or not fits(call.sizes, 1, x.size(0)):
        return LEFT_TO_PYG
    return call.graph(x.size(0)) or OUT_OF_RANGE


def _is_feature(call: Propagation, tensor: Any, dims: int) -> bool:
    return (
        (type(tensor) is Tensor or type(tensor) is Parameter)
        and tensor.dtype in FLOATS
        and ((tensor.is_cpu and call.edges.is_cpu) or tensor.device == call.edges.device)
        and tensor.layout is torch.strided
        and tensor.dim() == dims
        and not is_wrapped(tensor)
        and not (in_older_vmap() and wraps(tensor))
    )


def _dtypes_reason(call: Propagation, dims: int, x: Any, *others: Any) -> str | None:
    """Return why scores of these features cannot be computed here; None if they can."""
    if not _is_feature(call, x, dims):
        return f"the features {_unfit(call, dims)}"
    reason = backend_reason(x, call.backend)
    if reason is not None:
        return reason
    if autocasts(x) and not x.is_cpu:
        return "autocast decides on the dtypes of its scores"
    reason = _alike_reason(x, x.dtype, others)
    if reason is not None:
        return reason
    if dims == 2 and call.layer.node_dim not in (-2, 0):
        return "node_dim is not the first of two dimensions"
    return None


def _alike_reason(x: Tensor, dtype: torch.dtype, others: Sequence[Any]) -> str | None:
    if any(not isinstance(other, Tensor) or other.dtype is not dtype for other in others):
        return "its features and parameters differ in dtype"
    if any(other.device != x.device for other in others):
        return "its features and parameters are on different devices, which PyG is left to report"
    return None


def _unfit(call: Propagation, dims: int) -> str:
    where = call.edges.device
    return f"are no dense floating-point tensors of {dims} dimensions on {where}, where edge_index is"


def _can_fuse(call: Propagation, pending: Pending, names: set[str]) -> bool:
    return (
        call.reduce == "sum"
        and pending.edge_index is call.edge_index
        and pending.operands.keys() == names
        and call.edges.size(1) > 0
        and (call.edges.is_cpu or not autocasts(call.edges))
    )


def _drawn(layer: Any, graph: Graph, like: Tensor) -> Tensor:
    """[E, H]: the factors of PyG's dropout, drawn as PyG would draw them now."""
    shape, p = (graph.num_edges, like.size(1)), layer.dropout
    if session.now.settings.dropout:
        mask = like.new_empty(shape)
        if serves(mask, p):
            return factors(mask, p)
    return dropout(like.new_ones(shape), p=p, training=True)
