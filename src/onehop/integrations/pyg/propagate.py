"""The fast path: a layer's whole propagation as one aggregation over a cached graph."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import contexts, memory, reports, session
from onehop.integrations.contexts import context_reason
from onehop.integrations.pyg.aggregation_task import Task
from onehop.integrations.pyg.attention import prepare as prepare_attention
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import (
    FITS_CACHE,
    OTHER_OPERANDS,
    OUT_OF_RANGE,
    REDUCTIONS,
    TOO_SMALL,
    ClassRecord,
    difference_reason,
    edges_of,
    layer_reason,
    placement_reason,
    reduction_of,
    source_of,
    weight_of,
)
from onehop.integrations.pyg.graphs import graph_of, scales_of
from onehop.integrations.pyg.matrices import is_matrix
from onehop.integrations.pyg.matrix_operands import message_edges, operands_over
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.placement import backend_of
from onehop.integrations.pyg.processes import parts_for
from onehop.integrations.pyg.recognise import OVER_MATRIX, AttentionForm, Form
from onehop.integrations.pyg.rowwise.compiled import CompiledTask
from onehop.integrations.pyg.rowwise.task import BlockTask, fits_cache, in_blocks_instead
from onehop.integrations.pyg.sizes import is_too_small
from onehop.integrations.pyg.small import as_pyg, over_few
from onehop.integrations.rows import stand_in

Propagate = Callable[..., Any]

_SIZE = {"size"}


def wrap(theirs: Propagate, traced: Propagate) -> Propagate:
    """A ``propagate`` that takes the fast path where it applies, and is ``theirs`` where it does not.

    Args:
        theirs: PyG's.
        traced: What runs while a program is traced, with the arguments of :func:`_propagate` but ``records``.
    """
    # Here and not in a module's table: it holds classes, and must die with the class that holds the function.
    records: dict[type, ClassRecord] = {}
    ours, stays, refused = _propagate, _stays_with_pyg, _refused
    is_compiling, state = torch.compiler.is_compiling, contexts

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
        if is_compiling() or state.as_program:
            return traced(theirs, self, edge_index, args, kwargs)
        record = records.get(type(self))
        # PyG's own code runs whatever the context, and costs what it costs without the patch.
        if record is not None and record.noted and stays(record, self, edge_index, kwargs):
            return refused(theirs, record, self, edge_index, args, kwargs)
        return ours(theirs, records, self, edge_index, args, kwargs)

    wrapped = stand_in(theirs, propagate)
    wrapped.onehop_theirs = theirs  # type: ignore[attr-defined]
    wrapped.onehop_records = records  # type: ignore[attr-defined]
    return wrapped


def _propagate(
    theirs: Propagate,
    records: dict[type, ClassRecord],
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
        record = records[kind] = ClassRecord(kind)
    if type(edge_index) is not Tensor:
        parts = parts_for(edge_index)
        if parts is not None:
            return parts.propagate_part(record, layer, edge_index, args, kwargs)
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
    task = context or _prepare(record, layer, edge_index, args, kwargs, small)
    if isinstance(task, str):
        kwargs = settled(kwargs)
        if context is None:
            task = in_blocks_instead(task, record, layer, edge_index, args, kwargs)
    if isinstance(task, str):
        reports.refuse(layer, task)
        if task in (TOO_SMALL, FITS_CACHE, record.block_reason):
            record.noted.add(task)
        if task is FITS_CACHE:
            return _refused(theirs, record, layer, edge_index, args, kwargs)
        return theirs(layer, edge_index, *args, **kwargs)
    begin(task, layer)
    return task.run()


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
    if reports.listener is not None or type(edge_index) is not Tensor:
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


def begin(
    task: "Task | AttentionTask | BlockTask | CompiledTask", layer: Any, order: str | None = None
) -> None:
    """Notes that a task is about to run: for ``explain``, and for the policy of memory.

    Args:
        task: The task.
        layer: Whose it is.
        order: "before" or "after" its linear step, where that is not the layer's own order.
    """
    if reports.listener is not None:
        call = task.described(layer)
        form = call.form if order is None else f"{call.form}, {order} its linear step"
        reports.record(replace(call, form=form))
    if task.x.nbytes >= thresholds.now.policy_bytes:
        memory.gained(layer, task.x, task.graph)


def record_of(layer: Any) -> ClassRecord | None:
    """Return the record of a layer's class; None where its ``propagate`` is its own, or the patch is off."""
    records = getattr(type(layer).propagate, "onehop_records", None)
    if records is None or not session.now.pyg or "propagate" in layer.__dict__:
        return None
    kind = type(layer)
    record: ClassRecord | None = records.get(kind)
    if record is None or not record.holds(kind):
        record = records[kind] = ClassRecord(kind)
    return record


def task_of(layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Any:
    """The task that a layer's ``propagate`` would run, or a sentence why there is none."""
    record = record_of(layer)
    return "its propagate is its own" if record is None else _prepare(record, layer, edge_index, (), kwargs)


def task_over(graph: Graph, layer: Any, x: Tensor, weight: Tensor | None, scale: Tensor | None) -> Task | str:
    """The task of a layer with one operand and a weight, over a graph that is known; or why there is none.

    Args:
        graph: The graph.
        layer: The layer.
        x: [num_src, F], dense floating-point numbers on the CPU.
        weight: [E] or None.
        scale: [N], to multiply sources and destinations by, or None.
    """
    record = record_of(layer)
    if record is None or record.reason is not None or not isinstance(record.form, Form):
        return "its propagate is its own"
    reason = layer_reason(layer, record.fuses)
    if reason is not None:
        return reason
    reduce, reason = reduction_of(layer)
    if reason is not None:
        return reason
    return Task(record.form, reduce, graph, x, weight, scale)


def _prepare(
    record: ClassRecord,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    small: bool = False,
) -> Task | AttentionTask | str:
    """The task, or the sentence why there is none. O(1), but for an edge_index seen for the first time."""
    reason = record.reason or layer_reason(layer, record.fuses)
    if reason is not None:
        return reason
    reduce, reason = reduction_of(layer)
    if reason is not None:
        return reason
    if small:
        return TOO_SMALL
    form = record.form
    assert form is not None
    if args or (kwargs.keys() != record.names and kwargs.keys() - _SIZE != record.names):
        return OTHER_OPERANDS
    # Asked here first, for every call comes by.
    if type(edge_index) is Tensor and edge_index.layout is not torch.strided and is_matrix(edge_index):
        if isinstance(form, AttentionForm):
            return _attending_over_matrix(layer, form, reduce, edge_index, kwargs)
        return _over_matrix(layer, form, reduce, edge_index, kwargs)
    edges = edges_of(layer, edge_index, kwargs.get("size"), record.fuses)
    if isinstance(edges, str):
        return edges
    data, sizes = edges
    forwards = layer.flow == "source_to_target"
    if isinstance(form, AttentionForm):
        call = Propagation(
            layer,
            reduce,
            edge_index,
            data,
            data.size(1),
            sizes,
            kwargs,
            0 if forwards else 1,
            session.now.backend,
        )
        return prepare_attention(form.kind, call)
    x = source_of(layer, kwargs[form.source], sizes, forwards)
    if isinstance(x, str):
        return x
    weight = None
    if form.weight is not None:
        weight, reason = weight_of(form, kwargs, data.size(1))
        if reason is not None:
            return reason
    subtrahend = None
    if form.subtract is not None:
        subtrahend = kwargs[form.subtract]
        reason = difference_reason(layer, subtrahend, x, reduce, sizes, forwards)
        if reason is not None:
            return reason
    backend = session.now.backend if not session.now.machine else backend_of(layer, x, reduce)
    on_cpu = data.is_cpu and x.is_cpu and (weight is None or weight.is_cpu) and subtrahend is None
    # Some backend always runs on the CPU.
    reason = None if on_cpu and not backend else placement_reason(backend, data, x, weight, subtrahend)
    if reason is not None:
        return reason
    receiving = 1 if forwards else 0
    num_dst = sizes[receiving]
    if num_dst is None:
        num_dst = sizes[1 - receiving]
    num_src = x.size(-2)
    graph = graph_of(data, num_src, num_dst, forwards) if type(num_dst) is int else None
    if graph is None:
        return OUT_OF_RANGE
    scale = None
    if weight is not None and reduce in ("sum", "mean"):
        scale = scales_of(weight, data, num_src, graph.num_dst, x.dtype)
        if scale is not None:
            weight = None
    return Task(form, reduce, graph, x, weight, scale, subtrahend, backend)


def _over_matrix(layer: Any, form: Form, reduce: str, matrix: Tensor, kwargs: dict[str, Any]) -> Task | str:
    """The task over a sparse matrix, or the sentence why there is none."""
    found = operands_over(layer, form, reduce, matrix, kwargs)
    if isinstance(found, str):
        return found
    subtrahend = None
    if form.subtract is not None:
        subtrahend = kwargs[form.subtract]
        reason = difference_reason(layer, subtrahend, found.x, reduce, found.sizes, forwards=True)
        if reason is not None:
            return reason
    backend = session.now.backend if not session.now.machine else backend_of(layer, found.x, reduce)
    if backend or subtrahend is not None:
        reason = placement_reason(backend, found.x, found.x, found.weight, subtrahend)
        if reason is not None:
            return reason
    shown = OVER_MATRIX if form.weight is None and found.weight is not None else form
    return Task(
        shown,
        reduce,
        found.graph,
        found.x,
        found.weight,
        found.scale,
        subtrahend,
        backend,
        found.first,
    )


def _attending_over_matrix(
    layer: Any, form: AttentionForm, reduce: str, matrix: Tensor, kwargs: dict[str, Any]
) -> AttentionTask | str:
    """The task of attention over a sparse matrix, or the sentence why there is none."""
    graph = message_edges(layer, matrix)
    if isinstance(graph, str):
        return graph
    if "edge_weight" in kwargs and kwargs["edge_weight"] is None:
        kwargs = {**kwargs, "edge_weight": matrix.values()}
    sizes: list[int | None] = [matrix.size(1), matrix.size(0)]
    edges = graph.num_edges
    call = Propagation(layer, reduce, matrix, matrix, edges, sizes, kwargs, 0, session.now.backend, graph)
    return prepare_attention(form.kind, call)
