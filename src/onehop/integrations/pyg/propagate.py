"""The entry of the patch: ``propagate`` runs a plan of ours where there is one, and PyG's code elsewhere."""

import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from onehop.graph import Graph
from onehop.integrations import reports, session
from onehop.integrations.pyg import machine
from onehop.integrations.pyg.admit import Source, Target, Weight
from onehop.integrations.pyg.aggregation import Aggregation
from onehop.integrations.pyg.call import Call, Plan, begin
from onehop.integrations.pyg.edges import Edges
from onehop.integrations.pyg.edges.few import NOT_SERVED, FewListedEdges, are_few
from onehop.integrations.pyg.edges.listed import ListedEdges
from onehop.integrations.pyg.edges.matrix import MatrixEdges, is_adjacency, with_values
from onehop.integrations.pyg.edges.processes import parts_for
from onehop.integrations.pyg.edges.sizes import are_tiny, has_small_messages, is_too_small
from onehop.integrations.pyg.edges.writes import watch
from onehop.integrations.pyg.layer import (
    EXPLAINED,
    ClassRecord,
    Propagate,
    Records,
    layer_reason,
    module_reason,
    record_of,
    reduction_of,
)
from onehop.integrations.pyg.leave import (
    LEFT_TO_PYG,
    OTHER_OPERANDS,
    OWN_PRODUCT,
    SIGNALS,
    TOO_SMALL,
    VALUES_ELSEWHERE,
    Leave,
    leave_if,
    need,
)
from onehop.integrations.pyg.pending import Pending, settled
from onehop.integrations.pyg.rules import fused_functions, own_message
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS, aggregator_reason
from onehop.integrations.pyg.rules.own_message import MASK, OwnMessage
from onehop.integrations.pyg.signals import Signals, folded
from onehop.integrations.rows import stand_in
from onehop.ops.contexts import as_program, context_reason

FEW = "few edges, without a graph"
_SIZE = {"size"}
_EXTREMA = ("max", "min")
_NAMELESS = "propagate gets operands without a name"
# Specs of rules whose messages are the same rows whatever dimensions are in front of them.
_OF_ANY_ROWS = (Source, Target, Weight)
_OWN_FUSED = "edge_index is a sparse matrix, for which its class has a message_and_aggregate of its own"


def wrap(theirs: Propagate, traced: Propagate) -> Propagate:
    """A ``propagate`` that takes the fast path where it applies, and is ``theirs`` where it does not.

    Args:
        theirs: PyG's.
        traced: What runs while a program is traced, with the arguments of :func:`_propagate` but ``records``.
    """
    # Here and not in a module's table: it holds a class, and must die with the class that holds the function.
    records = Records(theirs)
    ours, in_program = _propagate, as_program
    in_dynamo, flags = torch.compiler.is_dynamo_compiling, torch.compiler

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if in_dynamo() or flags._is_compiling_flag or (in_program.live and in_program.get()):
            return traced(theirs, self, edge_index, args, kwargs)
        return ours(theirs, records, self, edge_index, args, kwargs)

    wrapped = stand_in(theirs, propagate)
    wrapped.onehop_records = records  # type: ignore[attr-defined]
    return wrapped


def _propagate(
    theirs: Propagate,
    records: Records,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    kind, now = type(layer), session.now
    record = records.get(kind)
    if record is None and now.pyg:
        record = records.made(kind)
    # The size first: beside the sums over few edges, every other test would show.
    if record is not None and _is_small(record, layer, edge_index, kwargs):
        out = _over_few(record, layer, edge_index, args, kwargs) if record.serves_few else None
        if out is not None:
            return out
        if record.told is now.logged and not reports.recording():
            return _left(theirs, layer, edge_index, args, kwargs)
    context = context_reason()
    # Wrappers may be held somewhere when the patch is gone, as on single instances.
    if not now.pyg:
        return theirs(layer, edge_index, *args, **settled(kwargs))
    if record is None or not record.holds(kind):
        record = records.made(kind)
    if args and record.plain and len(args) == 1 and "size" not in kwargs:
        kwargs, args = {"size": args[0], **kwargs}, ()
    if type(edge_index) is not Tensor and parts_for(edge_index) is not None:
        from onehop.integrations.pyg.parts import propagate_part

        own = partial(_by_name, theirs, records, layer)
        return propagate_part(theirs, record, layer, edge_index, args, kwargs, own)
    try:
        if context is not None:
            raise Leave(context)
        plan = planned(record, layer, edge_index, args, kwargs)
    except Leave as why:
        plan, sentence = None, why.sentence
        if sentence is SIGNALS:
            plan, sentence = _of_signals(record, layer, edge_index, args, kwargs)
        elif sentence is EXPLAINED:
            plan, sentence = _explained(record, layer, edge_index, args, kwargs)
    if now.machine:
        where = ("", sentence) if plan is None else (plan.backend, plan.aside)
        machine.note_elsewhere(layer, *where)
    if plan is None:
        reports.refuse(layer, sentence)
        if sentence is TOO_SMALL and not reports.recording():
            record.told = now.logged
        return _left(theirs, layer, edge_index, args, kwargs)
    begin(plan, layer)
    out = plan.run()
    watch(edge_index, out)
    return out


def aggregated_over_few(layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Any:
    """The result of ``propagate`` over few edges; None if PyG's code has to run."""
    record = record_of(layer)
    if record is None or not record.serves_few:
        return None
    return _over_few(record, layer, edge_index, (), kwargs)


def _over_few(
    record: ClassRecord, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result over few edges, of which no graph is made; None if PyG's code has to run."""
    left = not are_few(edge_index) or not session.now.pyg or context_reason() is not None
    if left or not record.holds(type(layer)):
        return None
    try:
        plan = by_rule(record, layer, edge_index, args, kwargs, FewListedEdges)
        out = plan.run()
    except NOT_SERVED:
        return None
    if reports.listener.live and reports.recording():
        reports.record(reports.Call(layer, None, plan.form, plan.reduce, "cpu", FEW))
    return out


def _of_signals(
    record: ClassRecord, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Plan | None, str]:
    """The plan of a propagation of several signals over one graph; or None, and why there is none."""
    rule = record.rule
    plan: Any
    try:
        need(not args, _NAMELESS)
        own = record.own
        need(type(layer.aggr_module) in REDUCTIONS and own.update is None and not own.reduces, SIGNALS)
        signals = folded(layer, record.own.message, edge_index, kwargs)
        if rule is not None and all(isinstance(spec, _OF_ANY_ROWS) for spec in rule.operands.values()):
            plan = by_rule(record, signals.one, signals.edge_index, (), signals.operands)
        else:
            plan = with_own_message(record, layer, signals.edge_index, (), signals.operands, signals=signals)
    except Leave as why:
        return None, why.sentence
    return signals.plan(plan), ""


def _explained(
    record: ClassRecord, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Plan | None, str]:
    """The plan of a propagation whose messages an explainer weighs; or None, and why there is none.

    An explanation's number of each edge is one more factor of the message.
    """
    try:
        own = type(layer).explain_message is MessagePassing.explain_message
        need(own and "explain_message" not in vars(layer), "its explain_message is its own")
        need(not record.own.reduces, EXPLAINED)
        need(not _is_small(record, layer, edge_index, kwargs), TOO_SMALL)
        need(type(edge_index) is Tensor and edge_index.layout is torch.strided, EXPLAINED)
        need(isinstance(layer._edge_mask, Tensor) and type(layer.aggr_module) in REDUCTIONS, EXPLAINED)
        mask, edges = layer._edge_mask, edge_index.size(1)
        if layer._apply_sigmoid:
            mask = mask.sigmoid()
        loops = 0
        if mask.size(0) != edges:
            # The layer has added loops, which are not explained.
            mask = mask[layer._loop_mask]
            loops = edges - mask.size(0)
            need(loops > 0, EXPLAINED)
            mask = torch.cat([mask, mask.new_ones(loops)])
        given = {**kwargs, MASK: mask}
        plan = with_own_message(record, layer, edge_index, args, settled(given), own=record.explained)
        need(loops in (0, plan.graph.num_dst), EXPLAINED)
    except Leave as why:
        return None, why.sentence
    return plan, ""


def _is_small(record: ClassRecord, layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether edges are so few that PyG's own code is as fast."""
    rule = record.rule
    if rule is None:
        return are_tiny(edge_index) or has_small_messages(edge_index, kwargs.values())
    costly = layer.aggr in _EXTREMA
    return is_too_small(edge_index, kwargs.get(rule.first), attends=rule.attends, costly=costly)


def _left(
    theirs: Propagate, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of PyG's own code."""
    if "alpha" in kwargs:
        kwargs = settled(kwargs)
    converted = sys.modules.get("onehop.distributed.converted")
    if converted is None:
        return theirs(layer, edge_index, *args, **kwargs)
    # PyG's modules reduce messages of edges here, and make no read-outs of all nodes.
    with converted.among_edges():
        return theirs(layer, edge_index, *args, **kwargs)


def _by_name(theirs: Propagate, records: Records, layer: Any, edge_index: Any, /, **operands: Any) -> Any:
    """Return the result of the wrapped ``propagate``, whatever a subclass makes of it."""
    return _propagate(theirs, records, layer, edge_index, (), operands)


def planned(
    record: ClassRecord, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Plan | Aggregation:
    """The plan of a propagation: by the rule of its message, or with the message itself.

    Args:
        record: What is known of the layer's class.
        layer: The layer.
        edge_index: The edges, as ``propagate`` got them.
        args: Operands by place.
        kwargs: Operands by name.

    Raises:
        Leave: PyG's own code has to run.
    """
    rule, small = record.rule, _is_small(record, layer, edge_index, kwargs)
    if rule is not None:
        try:
            if small:
                # What is wrong at every size is told first.
                _reduction(record, layer)
                raise Leave(TOO_SMALL)
            plan: Plan | Aggregation = by_rule(record, layer, edge_index, args, kwargs)
            return plan
        except Leave as why:
            # Further operands, which a rule does not expect, are not the message's.
            known = type(layer.aggr_module) in REDUCTIONS and why.sentence is not OTHER_OPERANDS
            if known and (small or not rule.compiles):
                raise
        small = small or has_small_messages(edge_index, kwargs.values())
    return with_own_message(record, layer, edge_index, args, settled(kwargs), small)


def with_own_message(
    record: ClassRecord,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    small: bool = False,
    signals: Signals | None = None,
    own: OwnMessage | None = None,
) -> Plan:
    """The plan of a propagation that runs the layer's message on each edge.

    Arguments are those of :func:`planned`, whether the edges are too few, of which signals they are, and the
    message, where it is not the class's.

    Raises:
        Leave: As :func:`planned`.
    """
    leave_if(
        record.block_reason
        or layer_reason(layer, record.fuses, explained=own is record.explained)
        or (None if record.own.reduces else aggregator_reason(layer.aggr_module))
        or module_reason(layer)
    )
    if small:
        raise Leave(TOO_SMALL)
    if args:
        raise Leave(_NAMELESS)
    edges: ListedEdges | MatrixEdges
    if is_adjacency(edge_index):
        need(not layer.fuse, _OWN_FUSED)
        edges = MatrixEdges(layer, edge_index, None)
    else:
        edges = ListedEdges(layer, edge_index, kwargs.get("size"), record.fuses)
    return own_message.planned(own or record.own, layer, edges, kwargs, signals)


def by_rule(
    record: ClassRecord,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    listed: type[ListedEdges] = ListedEdges,
) -> Any:
    """The plan by the rule of the layer's message; it takes O(1) but for edges seen for the first time.

    Arguments are those of :func:`planned`, and the class of edges that are a list.

    Raises:
        Leave: As :func:`planned`.
    """
    rule, names = record.rule, record.names
    if rule is None:
        raise Leave(LEFT_TO_PYG)
    reduce = _reduction(record, layer)
    if args or (kwargs.keys() != names and kwargs.keys() - _SIZE != names):
        raise Leave(OTHER_OPERANDS)
    edges: Edges
    # The layout first: this is the hot path.
    if (type(edge_index) is Tensor and edge_index.layout is torch.strided) or not is_adjacency(edge_index):
        edges = listed(layer, edge_index, kwargs.get("size"), record.fuses)
    else:
        need(not rule.listed, OWN_PRODUCT)
        need(not (rule.attends and record.plain), VALUES_ELSEWHERE)
        edges = MatrixEdges(layer, edge_index, fused_functions().get(type(layer).message))
        if rule.attends:
            kwargs = with_values(rule.operands, edge_index, kwargs)
            weights = kwargs.get("alpha")
            if type(weights) is Pending:
                # PyG gives the values to edge_update likewise, which makes the weights.
                weights.operands = with_values(weights.operands, edge_index, weights.operands)
    call = Call(layer, reduce, edges, kwargs, session.now.backend)
    return call.lowered(rule)


def _reduction(record: ClassRecord, layer: Any) -> str:
    """The reduction of a layer that has a fast path, as it is set up now."""
    reason = layer_reason(layer, record.fuses)
    if reason is None:
        reduce, reason = reduction_of(layer)
    if reason is not None:
        raise Leave(reason)
    return reduce


def aggregation_of(layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Any:
    """The plan by the rule of a layer's message.

    Raises:
        Leave: There is none, or the layer's ``propagate`` is its own.
    """
    record = record_of(layer)
    if record is None:
        raise Leave("its propagate is its own")
    plan = by_rule(record, layer, edge_index, (), kwargs)
    if isinstance(plan, Aggregation):
        plan.edge_index = edge_index
    return plan


def aggregation_over(
    graph: Graph, layer: Any, x: Tensor, weight: Tensor | None, scale: Tensor | None
) -> Aggregation:
    """The aggregation of a layer with one operand and a weight, over a graph that is known.

    Args:
        graph: The graph.
        layer: The layer.
        x: [num_src, F], dense floating-point numbers on the CPU.
        weight: [E] or None.
        scale: [N], multiplies sources and destinations; None means 1.

    Raises:
        Leave: As :func:`aggregation_of`.
    """
    record = record_of(layer)
    if record is None or record.rule is None or record.rule.attends:
        raise Leave("its propagate is its own")
    return Aggregation(record.rule.name, _reduction(record, layer), graph, x, weight, scale)
