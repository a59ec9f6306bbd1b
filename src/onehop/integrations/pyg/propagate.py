"""The entry of the patch: ``propagate`` runs a task of ours where there is one, and PyG's code elsewhere."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.integrations import reports, session
from onehop.integrations.pyg.attention_task import AttentionTask
from onehop.integrations.pyg.classes import Propagate
from onehop.integrations.pyg.conditions import FITS_CACHE, REDUCTIONS, TOO_SMALL, ClassRecord
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.placement import note_elsewhere
from onehop.integrations.pyg.processes import parts_for
from onehop.integrations.pyg.records import Records
from onehop.integrations.pyg.rowwise.compiled import CompiledTask
from onehop.integrations.pyg.rowwise.task import BlockTask, fits_cache, in_blocks_instead
from onehop.integrations.pyg.sizes import is_too_small
from onehop.integrations.pyg.small import as_pyg, over_few
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
    others = records.others
    ours, stays, refused = _propagate, _stays_with_pyg, _refused
    is_compiling, state = torch.compiler.is_compiling, contexts

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if is_compiling() or state.as_program:
            return traced(theirs, self, edge_index, args, kwargs)
        record = records.get(type(self)) or others.get(type(self))
        # PyG's own code runs whatever the context, and costs what it costs without the patch.
        if record is not None and record.noted and stays(record, self, edge_index, kwargs):
            return refused(theirs, record, self, edge_index, args, kwargs)
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
    small = (
        record.form is not None
        and context is None
        and is_too_small(edge_index, kwargs.get(record.first), attends=record.attends)
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
        if task in (TOO_SMALL, FITS_CACHE, record.block_reason):
            record.noted.add(task)
        if task is FITS_CACHE:
            return _refused(theirs, record, layer, edge_index, args, kwargs)
        return theirs(layer, edge_index, *args, **kwargs)
    begin(task, layer)
    return task.run()


def _by_name(theirs: Propagate, records: Records, layer: Any, edge_index: Any, /, **operands: Any) -> Any:
    """Return the result of the wrapped ``propagate``, whatever a subclass makes of it."""
    return _propagate(theirs, records, layer, edge_index, (), operands)


def _refused(
    theirs: Propagate,
    record: ClassRecord,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return PyG's result, where the class or the size is in the way of anything faster."""
    out = None if args else as_pyg(record, layer, edge_index, kwargs)
    return theirs(layer, edge_index, *args, **settled(kwargs)) if out is None else out


def _stays_with_pyg(record: ClassRecord, layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether the class or the size leaves a layer to PyG, as the log says; the layer is not asked."""
    # A machine's report names every layer that did not run on it.
    if reports.listener is not None or session.now.machine or type(edge_index) is not Tensor:
        return False
    noted = record.noted
    if (
        TOO_SMALL in noted
        and edge_index.layout is not torch.strided
        and is_too_small(edge_index, kwargs.get(record.first), attends=record.attends)
    ):
        return True
    if record.selection is not session.now.layers:
        return False
    if record.form is not None and type(layer.__dict__["_modules"].get("aggr_module")) in REDUCTIONS:
        return False
    if record.block_reason is not None:
        return record.block_reason in noted
    return FITS_CACHE in noted and fits_cache(edge_index, kwargs)
