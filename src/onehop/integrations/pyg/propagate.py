"""The entry of the patch: ``propagate`` runs a task of ours where there is one, and PyG's code elsewhere."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.integrations import reports, session
from onehop.integrations.pyg.attention_task import AttentionTask
from onehop.integrations.pyg.classes import Propagate
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.placement import note_elsewhere
from onehop.integrations.pyg.processes import parts_for
from onehop.integrations.pyg.records import Records
from onehop.integrations.pyg.rowwise.compiled import CompiledTask
from onehop.integrations.pyg.rowwise.task import BlockTask, in_blocks_instead
from onehop.integrations.pyg.sizes import has_small_messages, is_too_small
from onehop.integrations.pyg.small import over_few
from onehop.integrations.pyg.tasks import Task, begin, prepare
from onehop.integrations.rows import stand_in
from onehop.ops import contexts
from onehop.ops.contexts import context_reason


def wrap(theirs: Propagate, traced: Propagate) -> Propagate:
    """A ``propagate`` that takes the fast path where it applies, and is ``theirs`` where it does not.

    Args:
        theirs: PyG's.
        traced: What runs while a program is traced, with the arguments of :func:`_propagate` but ``records``.
    """
    # Here and not in a module's table: it holds a class, and must die with the class that holds the function.
    records = Records(theirs)
    ours, is_compiling, state = _propagate, torch.compiler.is_compiling, contexts

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if is_compiling() or state.as_program:
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
    kind = type(layer)
    record = records.get(kind)
    context = context_reason()
    # Wrappers may be held somewhere when the patch is gone, as on single instances.
    if not session.now.pyg:
        return theirs(layer, edge_index, *args, **settled(kwargs))
    if record is None or not record.holds(kind):
        record = records.made(kind)
    if args and record.plain and len(args) == 1 and "size" not in kwargs:
        kwargs, args = {"size": args[0], **kwargs}, ()
    if type(edge_index) is not Tensor:
        parts = parts_for(edge_index)
        if parts is not None:
            own = partial(_by_name, theirs, records, layer)
            return parts.propagate_part(theirs, record, layer, edge_index, args, kwargs, own)
    small = context is None and (
        has_small_messages(edge_index, kwargs.values())
        if record.form is None
        else is_too_small(edge_index, kwargs.get(record.first), attends=record.attends)
    )
    if small and not args:
        out = over_few(record, layer, edge_index, kwargs)
        if out is not None:
            return out
    task: Task | AttentionTask | BlockTask | CompiledTask | str
    task = context or prepare(record, layer, edge_index, args, kwargs, small)
    if isinstance(task, str):
        kwargs = settled(kwargs)
        if context is None:
            task = in_blocks_instead(task, record, layer, edge_index, args, kwargs)
    if session.now.machine:
        note_elsewhere(layer, task, isinstance(task, Task))
    if isinstance(task, str):
        reports.refuse(layer, task)
        return theirs(layer, edge_index, *args, **kwargs)
    begin(task, layer)
    return task.run()


def _by_name(theirs: Propagate, records: Records, layer: Any, edge_index: Any, /, **operands: Any) -> Any:
    """Return the result of the wrapped ``propagate``, whatever a subclass makes of it."""
    return _propagate(theirs, records, layer, edge_index, (), operands)
