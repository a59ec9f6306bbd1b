"""Layers on one process's part of a graph: an ``edge_index`` of the class LocalEdges.

What the layers do to an ``edge_index`` before they propagate, GCN's normalisation and self loops, is done to
the part, with degrees from all processes. There is nothing to fall back on: PyG would aggregate the part
alone, so what cannot be run is an error.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils.loop import compute_loop_attr

from onehop.distributed import aggregate, attention, gat, gatv2
from onehop.distributed.checks import edges_reason
from onehop.distributed.graph import DistributedGraph, LocalEdges
from onehop.distributed.loops import looped_rowptr, merged
from onehop.errors import ArgumentError
from onehop.integrations import memory, reports
from onehop.integrations.pyg.classes import is_left_out
from onehop.integrations.pyg.conditions import (
    ClassRecord,
    features_reason,
    layer_reason,
    reduction_of,
    source_of,
    weight_of,
)
from onehop.integrations.pyg.edge_features import Projection, edge_rows, edge_score
from onehop.integrations.pyg.part_messages import propagate_messages
from onehop.integrations.pyg.part_weights import PartWeights, made_weights, normalised_weights
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.recognise import AttentionForm, Form
from onehop.integrations.pyg.rowwise.aggregators import name_of
from onehop.ops.contexts import context_reason

# The attention that has an operator over processes; the rest computes its messages itself.
_FUSED = ("weights", "transformer")


def propagate_part(
    theirs: Callable[..., Any],
    record: ClassRecord,
    layer: Any,
    edge_index: LocalEdges,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    own: Callable[..., Any],
) -> Any:
    """A layer's propagation over all processes: the rows of this one.

    Args:
        theirs: PyG's ``propagate``.
        record: What is known of the layer's class.
        layer: The layer.
        edge_index: The edges of this process.
        args: What ``propagate`` gets by place, and
        kwargs: by name.
        own: The layer's ``propagate``, for a plain graph.

    Raises:
        ArgumentError: The layer, or what it is given, has no path over several processes.
    """
    graph = edge_index.graph
    reason = context_reason() or layer_reason(layer, record.fuses)
    if reason is None and is_left_out(type(layer)):
        reason = record.reason
    if reason is None and (args or layer.flow != "source_to_target"):
        reason = "flow='target_to_source', or operands by place"
    if reason is None and not _fits(graph, kwargs.get("size")):
        reason = f"a size other than {graph.num_sources} owned sources and {graph.num_nodes} owned nodes"
    if reason is not None:
        raise refused(layer, reason)
    operands = {name: value for name, value in kwargs.items() if name != "size"}
    _keep_memory_for(operands)
    form, (reduce, unknown) = record.form, reduction_of(layer)
    if isinstance(form, AttentionForm) and form.kind in _FUSED:
        name, out = _attend(layer, form, graph, reduce, operands)
    elif (
        isinstance(form, Form)
        and form.subtract is None
        and unknown is None
        and _is_matrix(operands[form.source])
    ):
        name, out = form.name, _aggregate(layer, form, graph, reduce, operands)
    else:
        # One line of the explanation, in place of what the layer does with the rows that are here.
        with reports.heard_by([]) if reports.recording() else contextlib.nullcontext():
            # The recipes of attention expect one tensor for both ends.
            own = functools.partial(theirs, layer) if record.attends else own
            out = propagate_messages(layer, own, graph, operands)
        if isinstance(out, str):
            raise refused(layer, out)
        name, reduce = "its messages", name_of(layer.aggr_module)
    if reports.recording():
        where = f"rank {graph.rank} of {graph.part.parts}"
        reports.record(reports.Call(layer, None, f"{name}, over processes", reduce, "distributed", where))
    return out


def refused(layer: Any, reason: str) -> ArgumentError:
    """The error for what has no path over several processes."""
    return ArgumentError(
        f"edge_index: {type(layer).__name__} cannot run on a DistributedGraph's edges: {reason}. Use the "
        "functions of onehop.distributed, or one process with the whole graph."
    )


def _keep_memory_for(operands: dict[str, Any]) -> None:
    """Notes the layer's operands for the policy of memory, as a layer over a whole graph does."""
    for value in operands.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, Tensor):
                memory.gained(each)


def _fits(graph: DistributedGraph, size: Any) -> bool:
    """Return whether a size, if there is one, is that of the owned rows."""
    if size is None:
        return True
    return all(
        given is None or given == own
        for given, own in zip(size, (graph.num_sources, graph.num_nodes), strict=True)
    )


def _is_matrix(x: Any) -> bool:
    """Return whether features have two dimensions, or are nothing that PyG gathers."""
    source = x[0] if isinstance(x, tuple | list) and x else x
    return not isinstance(source, Tensor) or source.dim() == 2


def _aggregate(
    layer: Any, form: Form, graph: DistributedGraph, reduce: str, operands: dict[str, Any]
) -> Tensor:
    x = source_of(layer, operands[form.source], [graph.num_sources, graph.num_nodes], forwards=True)
    if isinstance(x, str):
        what = "sources" if graph.is_bipartite else "nodes"
        raise refused(layer, f"{x}, or they are not a row for each of {graph.num_sources} owned {what}")
    scale = None
    if form.weight is not None and type(operands[form.weight]) is PartWeights:
        given = operands[form.weight]
        if reduce == "sum" and given.graph is graph and x.dtype is given.dtype:
            operands, scale = {**operands, form.weight: None}, given.scale
        else:
            operands = {**operands, form.weight: given.made()}
    weight = None
    if scale is None:
        given = operands.get(form.weight) if form.weight is not None else None
        reason = edges_reason("edge_weight", given, graph) if isinstance(given, Tensor) else None
        if reason is None:
            weight, reason = weight_of(form, operands, graph.num_edges)
        if reason is not None:
            raise refused(layer, reason)
    where = graph.device
    if x.device != where or (weight is not None and weight.device != where):
        raise refused(layer, f"the features or the edge weight are not on {where}, where its part is")
    return aggregate(graph, x, weight, reduce, src_scale=scale, dst_scale=scale)


def _attend(
    layer: Any, form: AttentionForm, graph: DistributedGraph, reduce: str, operands: dict[str, Any]
) -> tuple[str, Tensor]:
    if reduce != "sum":
        raise refused(layer, "its aggregation is not a sum")
    if form.kind == "transformer":
        query, key, value = (operands[name] for name in ("query", "key", "value"))
        edge = _projected(layer, graph, operands.get("edge_attr"), key, widen_vectors=False)
        if edge is None and layer.lin_edge is not None:
            raise refused(layer, "edge_attr: expected features of edges, as its edge_dim says, got None")
        mask = _drawn(layer, graph, key)
        return "dot-product attention", attention(graph, query, key, value, edge=edge, edge_mask=mask)
    pending = operands.get("alpha")
    if type(pending) is not Pending or pending.asked:
        raise refused(layer, "its attention weights are made outside, or asked for")
    source, target = operands["x"]
    attributes = pending.operands.get("edge_attr")
    if target is None and pending.kind == "gatv2":
        raise refused(layer, "it has no features of destinations")
    where = graph.device
    if features_reason(source.flatten(1), 0) is not None or source.device != where:
        raise refused(layer, f"the features are not a dense floating-point tensor on {where}")
    mask = _drawn(layer, graph, source)
    if pending.kind == "gatv2":
        edge = _projected(layer, graph, attributes, source)
        return "GATv2", gatv2(
            graph, source, target, layer.att[0], layer.negative_slope, edge=edge, edge_mask=mask
        )
    of_source, of_target = pending.operands["alpha"]
    if of_target is None:
        of_target = of_source.new_zeros(graph.num_nodes, of_source.size(1))
    score = _score(layer, graph, attributes, source)
    return "GAT", gat(
        graph, source, of_source, of_target, layer.negative_slope, edge_score=score, edge_mask=mask
    )


def _projected(
    layer: Any, graph: DistributedGraph, features: Any, like: Tensor, widen_vectors: bool = True
) -> Projection | None:
    """Return what ``lin_edge`` makes of the owned edges' features; None where there are none."""
    _check_edges(layer, graph, features)
    found = edge_rows(layer, features, graph.num_edges, like, widen_vectors)
    if isinstance(found, str):
        raise refused(layer, found)
    return None if found is None else found()


def _score(layer: Any, graph: DistributedGraph, features: Any, like: Tensor) -> Tensor | None:
    """[e, H]: the part of GAT's scores that the owned edges' features give; None where there are none."""
    _check_edges(layer, graph, features)
    found = None if features is None else edge_score(layer, features, graph.num_edges, like)
    if isinstance(found, str):
        raise refused(layer, found)
    return None if found is None else found()


def _check_edges(layer: Any, graph: DistributedGraph, features: Any) -> None:
    reason = edges_reason("edge_attr", features, graph) if isinstance(features, Tensor) else None
    if reason is not None:
        raise refused(layer, reason)


def _drawn(layer: Any, graph: DistributedGraph, like: Tensor) -> Tensor | None:
    """[e, H]: the factors of the layer's dropout; None for none."""
    if not layer.training or layer.dropout == 0:
        return None
    return functional.dropout(like.new_ones(graph.num_edges, like.size(1)), layer.dropout)


def rewritten_loops(
    name: str, edge_index: LocalEdges, edge_attr: Tensor | None, fill_value: Any = None
) -> tuple[LocalEdges, Tensor | None]:
    """PyG's ``add_self_loops`` and ``remove_self_loops`` for a part, and its edges' features with them.

    Args:
        name: Which.
        edge_index: The part's edges.
        edge_attr: [e, ...], for each of them; None means no features.
        fill_value: The features of a loop: a number, a tensor, or how the features of the other edges that
            end in its node are reduced, such as "mean"; None means 1.

    Raises:
        ArgumentError: The features are not those of the part's edges, or sources are other nodes.
    """
    graph = edge_index.graph
    if edge_attr is not None:
        reason = edges_reason("edge_attr", edge_attr, graph)
        if reason is not None:
            raise ArgumentError(f"{reason}. Take the rows with graph.edge_rows.")
    make = graph.with_self_loops if name == "add_self_loops" else graph.without_self_loops
    derived: DistributedGraph = graph.derived(name, make)
    if edge_attr is None:
        return derived.edge_index, None
    ends = graph.ends()
    if name == "remove_self_loops":
        return derived.edge_index, edge_attr.index_select(0, (ends[0] != ends[1]).nonzero().squeeze(1))
    # All edges that end in a node are in its part: what PyG's own function makes of them is what it makes in
    # one process.
    rowptr = looped_rowptr(graph.part.rowptr) if graph.loops else graph.part.rowptr
    of_loops = compute_loop_attr(ends, edge_attr, graph.num_nodes, False, fill_value)
    return derived.edge_index, merged(rowptr, edge_attr, of_loops)


def normalised(
    edge_index: LocalEdges,
    edge_weight: Tensor | None,
    improved: bool,
    add_self_loops: bool,
    flow: str,
    dtype: torch.dtype | None,
) -> tuple[LocalEdges, Tensor]:
    """GCN's normalisation of a part, after ``torch_geometric.nn.conv.gcn_conv.gcn_norm``.

    Raises:
        ArgumentError: ``flow`` is not "source_to_target", or the weight is not one number an edge.
    """
    graph = edge_index.graph
    if flow != "source_to_target":
        raise ArgumentError("flow: 'target_to_source' has no path over several processes; flip the edges.")
    if graph.is_bipartite:
        raise ArgumentError(
            "edge_index: GCN's normalisation is of graphs whose sources are their destinations."
        )
    if edge_weight is not None:
        if edge_weight.shape != (graph.num_edges,):
            raise ArgumentError(
                f"edge_weight: expected an entry for each of the {graph.num_edges} edges that end in nodes "
                f"of rank {graph.rank} (weight[graph.owned_edges]), got shape {list(edge_weight.shape)}."
            )
        return _weighted(graph, edge_weight, improved, add_self_loops)
    looped = _looped(graph, add_self_loops)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype in (torch.float32, torch.float64):
        return looped.edge_index, PartWeights.of(looped, dtype)
    # In 16 bits products of scales have PyG's rounding only if they are made as it makes them.
    return looped.edge_index, made_weights(looped, dtype)


def _weighted(
    graph: DistributedGraph, weight: Tensor, improved: bool, add_self_loops: bool
) -> tuple[LocalEdges, Tensor]:
    """The edges, and weight / sqrt(degree of the source * degree of the destination)."""
    if add_self_loops:
        weight = _with_loops(graph, weight, 2.0 if improved else 1.0)
    graph = _looped(graph, add_self_loops)
    return graph.edge_index, normalised_weights(graph, weight)


def _looped(graph: DistributedGraph, add_self_loops: bool) -> DistributedGraph:
    """The graph with one loop at every node, if they are to be added."""
    if not add_self_loops:
        return graph
    plain: DistributedGraph = graph.derived("remove_self_loops", graph.without_self_loops)
    looped: DistributedGraph = plain.derived("add_self_loops", plain.with_self_loops)
    return looped


def _with_loops(graph: DistributedGraph, weight: Tensor, fill: float) -> Tensor:
    """The weights, where the loop of every node has that of its last loop, or ``fill``."""
    source, target = graph.ends()
    loop = source == target
    of_loops = weight.new_full((graph.num_nodes,), fill)
    of_loops[target[loop]] = weight[loop]
    return merged(_looped(graph, True).part.rowptr, weight[~loop], of_loops)
