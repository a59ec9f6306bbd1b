"""The entry of the patch: ``propagate`` runs a plan of onehop if there is one, and PyG's code otherwise."""

from typing import Any

import torch
from torch import Tensor

from onehop.integrations import reports, session
from onehop.integrations.pyg import machine
from onehop.integrations.pyg.call import Call, begin
from onehop.integrations.pyg.edges.processes import parts_for
from onehop.integrations.pyg.edges.sizes import are_tiny
from onehop.integrations.pyg.edges.writes import watch
from onehop.integrations.pyg.layer import ClassRecord, Propagate, Records
from onehop.integrations.pyg.pending import Pending, settled
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.small_graphs import as_pyg
from onehop.integrations.pyg.stages import is_listed, is_small, over_few, planned_or_reason
from onehop.integrations.rows import stand_in
from onehop.loading import DISTRIBUTED
from onehop.ops.contexts import as_program, context_reason


def wrap(theirs: Propagate, traced: Propagate) -> Propagate:
    """Return a ``propagate`` that takes the fast path if it applies, and calls ``theirs`` otherwise.

    Args:
        theirs: PyG's ``propagate``.
        traced: Runs while a program is traced, with (theirs, layer, edge_index, args, kwargs).
    """
    # The records are local and not in a module's table, because they refer to a class and must be freed
    # together with the class that has this function.
    records = Records(theirs)
    ours, in_program = _propagate, as_program
    in_dynamo, flags = torch.compiler.is_dynamo_compiling, torch.compiler
    record_for, in_force, tiny, listener = records.get, session, are_tiny, reports.listener
    promised, divided, small = Pending, DISTRIBUTED, as_pyg

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if in_dynamo() or flags._is_compiling_flag or (in_program.live and in_program.get()):
            return traced(theirs, self, edge_index, args, kwargs)
        record = record_for(type(self))
        # If such a call was once too small and PyG ran it, PyG runs it again, before any object is made.
        if (
            record is not None
            and record.left is in_force.now.logged
            and tiny(edge_index)
            and record.leaves_fewest(self, kwargs)
            and not listener.live
            and type(kwargs.get("alpha")) is not promised
            and divided.provided is None
        ):
            return small(theirs, record, self, edge_index, args, kwargs)
        return ours(theirs, records, record, self, edge_index, args, kwargs)

    wrapped = stand_in(theirs, propagate)
    wrapped.onehop_records = records  # type: ignore[attr-defined]
    return wrapped


def _propagate(
    theirs: Propagate,
    records: Records,
    record: ClassRecord | None,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    operands: dict[str, Any],
) -> Any:
    kind, now = type(layer), session.now
    if record is None and now.pyg:
        record = records.of_class(kind)
    call = Call(layer, record, edge_index, operands, args)
    # The size is tested first, with few calls: compared with sums over few edges, any other test takes
    # noticeable time.
    served = (
        record is not None
        and record.serves_few
        and type(layer._modules.get("aggr_module")) in REDUCTIONS
        and (record.weights is None or not are_tiny(edge_index) or not record.leaves_fewest(layer, operands))
    )
    if record is not None and (is_listed if served else is_small)(call):
        out = over_few(call) if served and record.holds(kind) else None
        if out is not None:
            return out
        # Up to a smaller number of edges, PyG's own code is as fast.
        call.is_small = not served or is_small(call)
        if call.is_small and record.left is now.logged and not reports.recording():
            return _left(theirs, call)
    # Wrappers may outlive the patch, for example on single instances.
    if not now.pyg:
        return theirs(layer, edge_index, *args, **settled(operands))
    if record is None or not record.holds(kind):
        call.record = record = records.of_class(kind)
    if args and record.plain and len(args) == 1 and "size" not in operands:
        call.operands, call.args = {"size": args[0], **operands}, ()
    if type(edge_index) is not Tensor and parts_for(edge_index) is not None:
        from onehop.integrations.pyg.parts import propagate_part

        return propagate_part(theirs, call, _as_wrapped(theirs, records, layer))
    reason = context_reason()
    plan, reason = (None, reason) if reason is not None else planned_or_reason(call)
    if now.machine:
        where = ("", reason) if plan is None else (plan.backend, plan.aside)
        machine.note_elsewhere(layer, *where)
    if plan is None:
        reports.refuse(layer, reason)
        if call.is_small and not reports.recording():
            record.left = now.logged
        return _left(theirs, call)
    begin(plan, layer)
    out = plan.run()
    watch(edge_index, out)
    return out


def _left(theirs: Propagate, call: Call) -> Any:
    """Return the result of PyG's own code."""
    operands = settled(call.operands) if "alpha" in call.operands else call.operands
    distributed = DISTRIBUTED.provided
    if distributed is None:
        if call.is_small:
            return as_pyg(theirs, call.record, call.layer, call.edge_index, call.args, operands)
        return theirs(call.layer, call.edge_index, *call.args, **operands)
    # In this block, PyG's aggregation modules reduce messages of edges, so they are not read-outs of all
    # nodes.
    with distributed.converted.among_edges():
        return theirs(call.layer, call.edge_index, *call.args, **operands)


def _as_wrapped(theirs: Propagate, records: Records, layer: Any) -> Propagate:
    """Return the layer's wrapped ``propagate``, even if a subclass has its own; it takes keyword operands."""

    def propagate(edge_index: Any, /, **operands: Any) -> Any:
        return _propagate(theirs, records, records.get(type(layer)), layer, edge_index, (), operands)

    return propagate
