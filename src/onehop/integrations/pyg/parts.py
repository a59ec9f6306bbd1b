"""Layers on one process's part of a graph, by their rule or by their own messages.

A layer that cannot run raises an error, because PyG's own code would aggregate only the part. The part
contains every edge that ends in an owned row, with its features. So after the sources' rows have arrived,
messages and their reduction are the same as over the whole graph. A layer without a rule propagates over a
plain bipartite graph, from owned and halo rows to owned rows. It first receives all rows; nothing is computed
meanwhile.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onehop.distributed import aggregate
from onehop.distributed.checks import edges_reason
from onehop.distributed.converted import among_edges
from onehop.distributed.graph import DistributedGraph
from onehop.errors import ArgumentError
from onehop.integrations import reports
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.conditions import check_layer, reduction_of
from onehop.integrations.pyg.edges.part import PartEdges, PartWeights
from onehop.integrations.pyg.layer import LEFT_OUT, is_left_out
from onehop.integrations.pyg.leave import Leave, is_plain, leave_if, need
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.rules.aggregators import name_of
from onehop.ops.contexts import WRAPPED, context_reason, wraps

# Arguments that PyG adds to a message and that contain source numbers, or the number of all nodes.
_OF_THE_WHOLE = ("edge_index", "edge_index_j", "adj_t", "size", "size_j")

Ends = tuple[Tensor | None, Tensor | None]


def propagate_part(theirs: Callable[..., Any], call: Call, wrapped: Callable[..., Any]) -> Any:
    """Runs a layer's propagation over all processes and returns the rows of this process.

    Args:
        theirs: PyG's ``propagate``.
        call: The call, over the edges of this process.
        wrapped: The layer's wrapped ``propagate``, for a plain graph.

    Raises:
        ArgumentError: The layer or an operand is not supported over several processes.
    """
    layer, record, edges = call.layer, call.record, call.edge_index
    graph, rule = edges.graph, record.rule
    operands = {name: value for name, value in call.operands.items() if name != "size"}
    try:
        leave_if(context_reason())
        check_layer(layer, record.fuses)
        need(not is_left_out(type(layer)), LEFT_OUT)
        need(
            not call.args and layer.flow == "source_to_target",
            "flow='target_to_source', or operands by place",
        )
        outcome = _by_rule(call, PartEdges(edges, call.operands.get("size")), operands)
        if outcome is None:
            # The explanation gets one line; what the layer does with the local rows is not recorded.
            with reports.recorded() if reports.recording() else contextlib.nullcontext():
                # The rules of attention expect one tensor for both ends, so they are not used here.
                runs = functools.partial(theirs, layer) if rule is not None and rule.attends else wrapped
                out = propagate_messages(layer, runs, graph, operands)
            outcome = "its messages", name_of(layer.aggr_module), out
    except Leave as why:
        raise ArgumentError(
            f"edge_index: {type(layer).__name__} cannot run on a DistributedGraph's edges: {why.sentence}. "
            "Use the functions of onehop.distributed, or one process with the whole graph."
        ) from None
    form, reduce, out = outcome
    if reports.recording():
        where = f"rank {graph.rank} of {graph.part.parts}"
        reports.record(reports.Call(layer, None, f"{form}, over processes", reduce, "distributed", where))
    return out


def _by_rule(call: Call, edges: PartEdges, operands: dict[str, Any]) -> tuple[str, str, Any] | None:
    """Return the message and the reduction, as ``explain`` shows them, and the result.

    Args:
        call: The call.
        edges: The edges of the call.
        operands: The operands of the call without ``size``.

    Returns:
        None if no rule supports several processes; then the layer propagates its own messages.
    """
    rule = call.record.rule
    call.reduce, reason = reduction_of(call.layer)
    if rule is None or not rule.divides or reason is not None:
        return None
    # Attention takes features of any shape; other rules need matrices.
    x = operands.get(rule.first)
    source = x[0] if isinstance(x, tuple | list) and x else x
    if not rule.attends and isinstance(source, Tensor) and source.dim() != 2:
        return None
    alpha = operands.get("alpha")
    edges.check({**operands, **alpha.operands} if type(alpha) is Pending else operands)
    if not rule.attends:
        call = replace(call, operands=operands)
    plan = call.lowered(rule, edges, "")
    if isinstance(plan, Aggregation):
        scales: dict[str, Any] = {"src_scale": plan.scale, "dst_scale": plan.scale, "reduce": plan.reduce}
        out = aggregate(edges.graph(), plan.x, plan.weight, **scales)
    else:
        out = plan.run()
    return plan.form.removesuffix(", fused"), call.reduce, out


def propagate_messages(
    layer: Any, propagate: Callable[..., Any], graph: DistributedGraph, operands: dict[str, Any]
) -> Any:
    """Return the result of the layer's ``propagate`` for the owned rows.

    All operands are checked before anything is sent.

    Args:
        layer: The layer, which sends from sources to destinations.
        propagate: The layer's ``propagate``, for a plain graph.
        graph: The part of the graph.
        operands: The operands of ``propagate`` by name, without ``size``.

    Raises:
        Leave: The layer cannot run on one process's part of a graph.
    """
    of_message = set(layer.inspector.get_param_names("message"))
    names = of_message.union(*map(layer.inspector.get_param_names, ("aggregate", "update")))
    for name in _OF_THE_WHOLE:
        need(name not in names, f"its message takes {name}, and this part has numbers of its own for nodes")
    passed: dict[str, Any] = {}
    lifted: dict[str, Ends] = {}
    for name, value in operands.items():
        used = [end for end in ("_i", "_j") if name + end in names]
        both = used and name in names
        need(not both, f"its message takes {name} as it is, and by the ends of edges")
        if used:
            lifted[name] = _ends(layer, graph, name, value, used)
        else:
            passed[name] = value.materialised() if type(value) is PartWeights else value
            _check_passed(graph, name, passed[name], name in of_message)
    sent = {name: ends[0] for name, ends in lifted.items() if ends[0] is not None and f"{name}_j" in names}
    received = _received(graph, sent)
    for name, (_, target) in lifted.items():
        passed[name] = (received.get(name), target)
    edges = graph.derived("ends", graph.ends)
    with among_edges():
        return propagate(edges, size=(graph.num_sources + graph.num_halo, graph.num_nodes), **passed)


def _ends(layer: Any, graph: DistributedGraph, name: str, value: Any, used: list[str]) -> Ends:
    """Return an operand's rows of the sources and of the destinations, after checking them."""
    if isinstance(value, tuple | list):
        need(len(value) == 2, f"{name}: expected a tensor or a pair")
        source, target = value
    else:
        one = graph.is_bipartite and len(used) > 1
        need(not one, f"{name} is one tensor, and sources and destinations are different nodes")
        source, target = (value if f"_{end}" in used else None for end in "ji")
    for what, rows, x in (("sources", graph.num_sources, source), ("nodes", graph.num_nodes, target)):
        if x is None:
            continue
        where = f"{name}: expected"
        need(is_plain(x), f"{where} a tensor, got {type(x).__name__}")
        need(not wraps(x), WRAPPED)
        need(x.layout is torch.strided, f"{where} a dense tensor")
        rows_first = x.dim() > 0 and layer.node_dim % x.dim() == 0 and x.size(0) == rows
        owned = f"a row for each of the {rows} {what} that rank {graph.rank} owns"
        need(rows_first, f"{where} {owned}, got {list(x.shape)}")
        here = f"a tensor on {graph.device}, where its part is"
        need(x.device == graph.device, f"{where} {here}, got one on {x.device}")
    return source, target


def _check_passed(graph: DistributedGraph, name: str, value: Any, of_edges: bool) -> None:
    """Raises :class:`Leave` if an operand that is passed unchanged does not fit.

    Operands of a message have a row for each edge. Operands of ``update`` may have a row for each node.
    """
    if not isinstance(value, Tensor) or value.dim() == 0:
        return
    if of_edges or value.size(0) != graph.num_nodes:
        leave_if(edges_reason(name, value, graph))


def _received(graph: DistributedGraph, sources: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the owned rows of each tensor, followed by the halo's rows; each dtype has one exchange."""
    by_dtype: dict[torch.dtype, list[str]] = {}
    for name in sorted(sources):
        by_dtype.setdefault(sources[name].dtype, []).append(name)
    whole = {}
    for names in by_dtype.values():
        flat = [
            rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)
            for rows in (sources[name] for name in names)
        ]
        halo = graph.exchange.values(torch.cat(flat, 1))
        widths = [rows.size(1) for rows in flat]
        for name, rows in zip(names, halo.split(widths, 1), strict=True):
            owned = sources[name]
            whole[name] = torch.cat([owned, rows.reshape(len(rows), *owned.shape[1:])])
    return whole
