"""Layers on one process's part of a graph.

There is nothing to fall back on: PyG would aggregate the part alone, so what cannot be run is an error.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from onehop.distributed import aggregate
from onehop.distributed.graph import LocalEdges
from onehop.errors import ArgumentError
from onehop.integrations import memory, reports
from onehop.integrations.pyg.call import Call
from onehop.integrations.pyg.edges.part import (
    PartEdges,
    normalised as normalised,
    rewritten_loops as rewritten_loops,
)
from onehop.integrations.pyg.edges.part_messages import propagate_messages
from onehop.integrations.pyg.layer import ClassRecord, is_left_out, layer_reason, reduction_of
from onehop.integrations.pyg.leave import Leave, leave_if, need
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.rules.aggregators import name_of
from onehop.integrations.pyg.rules.plain import Aggregation
from onehop.ops.contexts import context_reason


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
        args: Operands of ``propagate`` by place.
        kwargs: Operands by name.
        own: The layer's ``propagate``, for a plain graph.

    Raises:
        ArgumentError: The layer, or what it is given, has no path over several processes.
    """
    try:
        name, reduce, out = _propagated(theirs, record, layer, edge_index, args, kwargs, own)
    except Leave as why:
        raise ArgumentError(
            f"edge_index: {type(layer).__name__} cannot run on a DistributedGraph's edges: {why.sentence}. "
            "Use the functions of onehop.distributed, or one process with the whole graph."
        ) from None
    if reports.recording():
        graph = edge_index.graph
        where = f"rank {graph.rank} of {graph.part.parts}"
        reports.record(reports.Call(layer, None, f"{name}, over processes", reduce, "distributed", where))
    return out


def _propagated(
    theirs: Callable[..., Any],
    record: ClassRecord,
    layer: Any,
    edge_index: LocalEdges,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    own: Callable[..., Any],
) -> tuple[str, str, Any]:
    """The messages and the reduction, as ``explain`` shows them, and the result."""
    leave_if(context_reason() or layer_reason(layer, record.fuses))
    if is_left_out(type(layer)):
        leave_if(record.reason)
    need(not args and layer.flow == "source_to_target", "flow='target_to_source', or operands by place")
    operands = {name: value for name, value in kwargs.items() if name != "size"}
    edges = PartEdges(edge_index, kwargs.get("size"))
    _keep_memory_for(operands)
    rule, (reduce, unknown) = record.rule, reduction_of(layer)
    if (
        rule is not None
        and rule.divides
        and unknown is None
        and _are_rows(operands.get(rule.first), rule.attends)
    ):
        alpha = operands.get("alpha")
        edges.check({**operands, **alpha.operands} if type(alpha) is Pending else operands)
        call = Call(layer, reduce, edges, kwargs if rule.attends else operands, "")
        plan = call.lowered(rule)
        if isinstance(plan, Aggregation):
            factors = (plan.weight, plan.reduce)
            out = aggregate(edge_index.graph, plan.x, *factors, src_scale=plan.scale, dst_scale=plan.scale)
        else:
            out = plan.run()
        return plan.form.removesuffix(", fused"), reduce, out
    # One line of the explanation, instead of what the layer does with the rows that are here.
    with reports.heard_by([]) if reports.recording() else contextlib.nullcontext():
        # The rules of attention expect one tensor for both ends.
        runs = functools.partial(theirs, layer) if rule is not None and rule.attends else own
        out = propagate_messages(layer, runs, edge_index.graph, operands)
    return "its messages", name_of(layer.aggr_module), out


def _keep_memory_for(operands: dict[str, Any]) -> None:
    """Notes the layer's operands for the policy of memory, as a layer over a whole graph does."""
    for value in operands.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, Tensor):
                memory.gained(each)


def _are_rows(x: Any, attends: bool) -> bool:
    """Return whether features are those of attention, of two dimensions, or nothing that PyG gathers."""
    source = x[0] if isinstance(x, tuple | list) and x else x
    return attends or not isinstance(source, Tensor) or source.dim() == 2
