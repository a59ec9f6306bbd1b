"""Layers on one process's part of a graph: an ``edge_index`` of the class LocalEdges.

What the layers do to an ``edge_index`` before they propagate, GCN's normalisation and self loops, is done to
the part, with degrees from all processes. There is nothing to fall back on: PyG would aggregate the part
alone, so what cannot be run is an error.
"""

from typing import Any

import torch
from torch import Tensor

from onehop.distributed import aggregate, attention, gat, gatv2
from onehop.distributed.dropout import dropout
from onehop.distributed.graph import DistributedGraph, LocalEdges
from onehop.distributed.loops import merged
from onehop.errors import ArgumentError
from onehop.integrations import reports
from onehop.integrations.pyg.conditions import (
    ClassRecord,
    features_reason,
    layer_reason,
    reduction_of,
    source_of,
    weight_of,
)
from onehop.integrations.pyg.part_weights import PartWeights, made_weights, normalised_weights
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.recognise import AttentionForm, Form
from onehop.ops.contexts import context_reason


def propagate_part(
    record: ClassRecord,
    layer: Any,
    edge_index: LocalEdges,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Tensor:
    """A layer's propagation over all processes: the rows of this one.

    Raises:
        ArgumentError: The layer, or what it is given, has no path over several processes.
    """
    graph = edge_index.graph
    reduce, reason = reduction_of(layer)
    reason = context_reason() or record.reason or layer_reason(layer, record.fuses) or reason
    if reason is None and (args or layer.flow != "source_to_target" or kwargs.get("size") is not None):
        reason = "flow='target_to_source', a size, or operands by place"
    if reason is not None:
        raise refused(layer, reason)
    form = record.form
    if isinstance(form, AttentionForm):
        name, out = _attend(layer, form, graph, reduce, kwargs)
    else:
        assert form is not None
        name, out = form.name, _aggregate(layer, form, graph, edge_index, reduce, kwargs)
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


def _aggregate(
    layer: Any, form: Form, graph: DistributedGraph, edges: Tensor, reduce: str, operands: dict[str, Any]
) -> Tensor:
    if form.source not in operands or form.subtract is not None:
        raise refused(layer, "its message needs the destinations' features too")
    x = source_of(layer, operands[form.source], [graph.num_nodes, graph.num_nodes], forwards=True)
    if isinstance(x, str):
        raise refused(layer, f"{x}, or they are not a row for each of {graph.num_nodes} owned nodes")
    scale = None
    if form.weight is not None and type(operands[form.weight]) is PartWeights:
        given = operands[form.weight]
        if reduce == "sum" and given.graph is graph and x.dtype is given.dtype:
            operands, scale = {**operands, form.weight: None}, given.scale
        else:
            operands = {**operands, form.weight: given.made()}
    weight, reason = (None, None) if scale is not None else weight_of(form, operands, graph.num_edges)
    if reason is not None:
        raise refused(layer, reason)
    if x.dim() != 2:
        raise refused(layer, "the features have three dimensions")
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
        if operands.get("edge_attr") is not None or layer.lin_edge is not None:
            raise refused(layer, "it has features of edges")
        mask = _drawn(layer, graph, key)
        return "dot-product attention", attention(graph, query, key, value, edge_mask=mask)
    pending = operands.get("alpha")
    if type(pending) is not Pending or pending.asked:
        raise refused(layer, "its attention weights are made outside, or asked for")
    source, target = operands["x"]
    if pending.operands.get("edge_attr") is not None or (target is None and pending.kind == "gatv2"):
        raise refused(layer, "it has features of edges, or none of destinations")
    where = graph.device
    if features_reason(source.flatten(1), 0) is not None or source.device != where:
        raise refused(layer, f"the features are not a dense floating-point tensor on {where}")
    mask = _drawn(layer, graph, source)
    if pending.kind == "gatv2":
        out = gatv2(graph, source, target, layer.att[0], layer.negative_slope, edge_mask=mask)
        return "GATv2", out
    of_source, of_target = pending.operands["alpha"]
    return "GAT", gat(graph, source, of_source, of_target, layer.negative_slope, edge_mask=mask)


def _drawn(layer: Any, graph: DistributedGraph, like: Tensor) -> Tensor | None:
    """[e, H]: the factors of the layer's dropout, drawn on this process for itself; None for none."""
    if not layer.training or layer.dropout == 0:
        return None
    return dropout(like.new_ones(graph.num_edges, like.size(1)), layer.dropout, graph.rank)


def rewritten_loops(name: str, edge_index: LocalEdges, edge_attr: Any) -> tuple[LocalEdges, None]:
    """PyG's ``add_self_loops`` and ``remove_self_loops`` for a part.

    Raises:
        ArgumentError: There are features of edges.
    """
    if edge_attr is not None:
        raise ArgumentError(
            f"edge_attr: {name} on a DistributedGraph's edges takes none; leave features of edges out."
        )
    graph = edge_index.graph
    make = graph.with_self_loops if name == "add_self_loops" else graph.without_self_loops
    derived: DistributedGraph = graph.derived(name, make)
    return derived.edge_index, None


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
