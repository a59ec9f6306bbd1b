"""The stages of a ``propagate`` call, from the layer to a plan, by the layer's rule or with its message."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from onehop.graph import Graph
from onehop.integrations import reports, session
from onehop.integrations.pyg.admit import Source, Target, Weight
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.call import Call, Plan
from onehop.integrations.pyg.conditions import check_layer, module_reason, reduction_of
from onehop.integrations.pyg.edges import Edges
from onehop.integrations.pyg.edges.few import NOT_SERVED, FewListedEdges, are_few
from onehop.integrations.pyg.edges.listed import ListedEdges
from onehop.integrations.pyg.edges.matrix import MatrixEdges, is_adjacency, with_values
from onehop.integrations.pyg.edges.sizes import are_tiny, has_small_messages, is_too_small
from onehop.integrations.pyg.layer import record_of
from onehop.integrations.pyg.leave import (
    EXPLAINED,
    LEFT_TO_PYG,
    OTHER_OPERANDS,
    OWN_PRODUCT,
    SIGNALS,
    TOO_SMALL,
    VALUES_ELSEWHERE,
    Explained,
    Leave,
    OfSignals,
    OtherOperands,
    leave_if,
    need,
)
from onehop.integrations.pyg.pending import Pending, settled
from onehop.integrations.pyg.rules import fused_functions, own_message
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS, aggregator_reason
from onehop.integrations.pyg.rules.own_message import MASK, OwnMessage
from onehop.integrations.pyg.signals import Signals, folded
from onehop.integrations.pyg.small_graphs import NOT_RUN
from onehop.loading import DISTRIBUTED
from onehop.ops.contexts import context_reason

FEW = "few edges, without a graph"
_SIZE = {"size"}
_EXTREMA = ("max", "min")
_NAMELESS = "propagate gets operands without a name"
_ELSEWHERE = "its propagate is its own"
# Specs of rules whose messages do not depend on leading dimensions.
_OF_ANY_ROWS = (Source, Target, Weight)
_OWN_FUSED = "edge_index is a sparse matrix, for which its class has a message_and_aggregate of its own"


# Few edges


def is_listed(call: Call) -> bool:
    """Return whether edges are so few that reading them as a list is faster than a plan over a graph."""
    rule: Any = call.record.rule
    first = call.operands.get(rule.first)
    return is_too_small(call.edge_index, first, attends=rule.attends, listed=True)


def is_small(call: Call) -> bool:
    """Return whether edges are so few that PyG's own code is as fast as a plan over a graph."""
    rule, edge_index, operands = call.record.rule, call.edge_index, call.operands
    if rule is None:
        return are_tiny(edge_index) or has_small_messages(edge_index, operands.values())
    costly = call.layer.aggr in _EXTREMA
    return is_too_small(edge_index, operands.get(rule.first), attends=rule.attends, costly=costly)


def over_few(call: Call) -> Any:
    """Return the result over few edges, without making a graph; None if PyG's code has to run.

    The record must hold for the layer's class.
    """
    layer = call.layer
    if not are_few(call.edge_index) or not session.now.pyg or context_reason() is not None:
        return None
    try:
        plan = by_rule(call, FewListedEdges)
        out = plan.run()
    except NOT_SERVED:
        return None
    if reports.listener.live and reports.recording():
        reports.record(reports.Call(layer, None, plan.form, plan.reduce, "cpu", FEW))
    return out


def aggregated_over_few(layer: Any, edge_index: Any, operands: dict[str, Any]) -> Any:
    """Return the result of a layer's ``propagate`` over few edges; None if PyG's ``propagate`` has to run."""
    record = record_of(layer)
    if record is None or not record.serves_few:
        return None
    if not are_tiny(edge_index) or not record.leaves_fewest(layer, operands):
        return over_few(Call(layer, record, edge_index, operands))
    # The first such call logs in propagate that PyG's operators run.
    is_logged = record.left is session.now.logged and not reports.listener.live
    if (
        record.steps is None
        or not is_logged
        or DISTRIBUTED.provided is not None
        or context_reason() is not None
    ):
        return None
    out = record.steps.run(layer, edge_index, operands)
    return None if out is NOT_RUN else out


# A plan


def planned_or_reason(call: Call) -> tuple[Plan | Aggregation | None, str]:
    """Return the plan of a call, or None and the reason why PyG's own code has to run."""
    try:
        try:
            return planned(call), ""
        except OfSignals:
            return _of_signals(call), ""
        except Explained:
            return _explained(call), ""
    except Leave as why:
        return None, why.sentence


def planned(call: Call) -> Plan | Aggregation:
    """Return the plan of a call, by the rule of the layer's message or with the message itself.

    Raises:
        Leave: PyG's own code has to run.
    """
    rule, too_small = call.record.rule, call.is_small
    if rule is not None:
        try:
            if call.is_small:
                # Reasons that hold at every size are checked first.
                _reduction(call.layer, call.record.fuses)
                raise Leave(TOO_SMALL)
            plan: Plan | Aggregation = by_rule(call)
            return plan
        except Leave as why:
            # OtherOperands means that the call's operands are not the ones that the message needs.
            is_reduction = type(call.layer.aggr_module) in REDUCTIONS and not isinstance(why, OtherOperands)
            if is_reduction and (call.is_small or not rule.compiles):
                raise
        too_small = too_small or has_small_messages(call.edge_index, call.operands.values())
    return with_own_message(replace(call, operands=settled(call.operands), is_small=too_small))


def by_rule(call: Call, listed: type[ListedEdges] = ListedEdges) -> Any:
    """Return the plan by the rule of the layer's message, in O(1) time except for new edges.

    Args:
        call: The call.
        listed: The class that wraps edges that are a list.

    Raises:
        Leave: PyG's own code has to run.
    """
    record, layer, edge_index, operands = call.record, call.layer, call.edge_index, call.operands
    rule, names = record.rule, record.names
    if rule is None:
        raise Leave(LEFT_TO_PYG)
    call.reduce = _reduction(layer, record.fuses)
    if call.args or (operands.keys() != names and operands.keys() - _SIZE != names):
        raise OtherOperands(OTHER_OPERANDS)
    edges: Edges
    # The layout is tested first, because this is the hot path.
    if (type(edge_index) is Tensor and edge_index.layout is torch.strided) or not is_adjacency(edge_index):
        edges = listed(layer, edge_index, operands.get("size"), record.fuses)
    else:
        need(not rule.listed, OWN_PRODUCT)
        need(not (rule.attends and record.plain), VALUES_ELSEWHERE)
        edges = MatrixEdges(layer, edge_index, fused_functions().get(type(layer).message))
        if rule.attends:
            call = replace(call, operands=with_values(rule.operands, edge_index, operands))
            weights = call.operands.get("alpha")
            if type(weights) is Pending:
                # PyG also passes the matrix's values to edge_update, which computes the weights.
                weights.operands = with_values(weights.operands, edge_index, weights.operands)
    return call.lowered(rule, edges, session.now.backend)


def _reduction(layer: Any, fuses: bool) -> str:
    """Return the reduction of a layer; raise :class:`Leave` if this instance has no fast path."""
    check_layer(layer, fuses)
    reduce, reason = reduction_of(layer)
    if reason is not None:
        raise Leave(reason)
    return reduce


def with_own_message(call: Call, signals: Signals | None = None, message: OwnMessage | None = None) -> Plan:
    """Return the plan of a call that runs the layer's message on each edge.

    Args:
        call: The call, without pending weights.
        signals: The signals that were joined into the call; None for one signal.
        message: The message, if it is not the class's own; None means the class's own.

    Raises:
        Leave: PyG's own code has to run.
    """
    record, layer, edge_index = call.record, call.layer, call.edge_index
    leave_if(record.block_reason)
    check_layer(layer, record.fuses, explained=message is record.explained)
    leave_if(
        (None if record.own_message.reduces else aggregator_reason(layer.aggr_module)) or module_reason(layer)
    )
    need(not call.is_small, TOO_SMALL)
    need(not call.args, _NAMELESS)
    edges: ListedEdges | MatrixEdges
    if is_adjacency(edge_index):
        need(not layer.fuse, _OWN_FUSED)
        edges = MatrixEdges(layer, edge_index, None)
    else:
        edges = ListedEdges(layer, edge_index, call.operands.get("size"), record.fuses)
    return own_message.planned(message or record.own_message, layer, edges, call.operands, signals)


def _of_signals(call: Call) -> Plan:
    """Return the plan of a propagation of several signals over one graph.

    Raises:
        Leave: PyG's own code has to run.
    """
    need(not call.args, _NAMELESS)
    record, layer, message = call.record, call.layer, call.record.own_message
    need(type(layer.aggr_module) in REDUCTIONS and message.update is None and not message.reduces, SIGNALS)
    signals = folded(layer, message.message, call.edge_index, call.operands)
    of_one = Call(layer, record, signals.edge_index, signals.operands)
    rule = record.rule
    if rule is not None and all(isinstance(spec, _OF_ANY_ROWS) for spec in rule.operands.values()):
        return signals.plan(by_rule(replace(of_one, layer=signals.one)))
    return signals.plan(with_own_message(of_one, signals=signals))


def _explained(call: Call) -> Plan:
    """Return the plan of a propagation whose messages an explainer weights.

    The explanation's number for each edge is one more factor of the message.

    Raises:
        Leave: PyG's own code has to run.
    """
    record, layer, edge_index = call.record, call.layer, call.edge_index
    is_pygs = type(layer).explain_message is MessagePassing.explain_message
    need(is_pygs and "explain_message" not in vars(layer), "its explain_message is its own")
    need(not record.own_message.reduces, EXPLAINED)
    need(not call.is_small, TOO_SMALL)
    need(type(edge_index) is Tensor and edge_index.layout is torch.strided, EXPLAINED)
    need(isinstance(layer._edge_mask, Tensor) and type(layer.aggr_module) in REDUCTIONS, EXPLAINED)
    mask, edges = layer._edge_mask, edge_index.size(1)
    if layer._apply_sigmoid:
        mask = mask.sigmoid()
    loops = 0
    if mask.size(0) != edges:
        # The layer has added self loops; the explanation does not weight them.
        mask = mask[layer._loop_mask]
        loops = edges - mask.size(0)
        need(loops > 0, EXPLAINED)
        mask = torch.cat([mask, mask.new_ones(loops)])
    weighed = replace(call, operands=settled({**call.operands, MASK: mask}))
    plan = with_own_message(weighed, message=record.explained)
    need(loops in (0, plan.graph.num_dst), EXPLAINED)
    return plan


# Aggregations of layers whose other steps onehop runs too


def aggregation_of(layer: Any, edge_index: Any, operands: dict[str, Any]) -> Any:
    """Return the plan by the rule of a layer's message.

    Raises:
        Leave: There is no plan, or the layer has its own ``propagate``.
    """
    record = record_of(layer)
    if record is None:
        raise Leave(_ELSEWHERE)
    plan = by_rule(Call(layer, record, edge_index, operands))
    if isinstance(plan, Aggregation):
        plan.edge_index = edge_index
    return plan


def aggregation_over(
    graph: Graph, layer: Any, x: Tensor, weight: Tensor | None, scale: Tensor | None
) -> Aggregation:
    """Return the aggregation of a layer with one operand and a weight, over a given graph.

    Args:
        graph: The graph.
        layer: The layer.
        x: [num_src, F], dense floating-point numbers on the CPU.
        weight: [E]; None means 1.
        scale: [N], multiplies sources and destinations; None means 1.

    Raises:
        Leave: There is no plan, or the layer has its own ``propagate``.
    """
    record = record_of(layer)
    if record is None or record.rule is None or record.rule.attends:
        raise Leave(_ELSEWHERE)
    return Aggregation(record.rule.name, _reduction(layer, record.fuses), graph, x, weight, scale)
