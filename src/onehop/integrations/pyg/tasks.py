"""Tasks: what a propagation needs, looked up and checked, before anything is computed.

A layer's operands and edges become a :class:`Task`, which is one aggregation, an :class:`AttentionTask`, or a
sentence that says why PyG's own code is to run.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.graph.lending import original
from onehop.integrations import memory, reports, session, tuning
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.attention import prepare as prepare_attention
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.conditions import (
    OTHER_OPERANDS,
    OUT_OF_RANGE,
    TOO_SMALL,
    VALUES_ELSEWHERE,
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
from onehop.integrations.pyg.matrix_operands import (
    is_adjacency,
    message_edges,
    operands_over,
    with_values,
)
from onehop.integrations.pyg.pending import Pending
from onehop.integrations.pyg.placement import backend_of
from onehop.integrations.pyg.recognise import OVER_MATRIX, AttentionForm, Form
from onehop.integrations.pyg.records import Records
from onehop.integrations.pyg.rowwise.compiled import CompiledTask
from onehop.integrations.pyg.rowwise.task import BlockTask
from onehop.ops.aggregate import reduce_rows
from onehop.ops.arg_extremum import arg_extremum

_SIZE = {"size"}


@dataclass(slots=True)
class Task:
    """One propagation, ready to run.

    Attributes:
        form: What the messages are.
        reduce: How they are reduced.
        graph: Over which edges.
        x: [num_src, F], or [B, num_src, F].
        weight: [E] or None.
        scale: [N], to multiply sources and destinations by, or None.
        subtrahend: [num_dst, F], what every message has subtracted, or None.
        backend: Who runs it, by name; empty means the best there is.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
    """

    form: Form
    reduce: str
    graph: Graph
    x: Tensor
    weight: Tensor | None = None
    scale: Tensor | None = None
    subtrahend: Tensor | None = None
    backend: str = ""
    first: bool = False

    def is_constant(self) -> bool:
        """Return whether the result may be kept, for the features need no gradient."""
        # Small graphs, where a call would show, end here.
        if self.graph.num_edges * self.x.size(-1) < thresholds.now.kept_work or self.subtrahend is not None:
            return False
        factor = self.scale if self.weight is None else self.weight
        return reuse.constant(self.x, factor, self.graph.num_edges)

    def run(self) -> Tensor:
        """The aggregated messages: [num_dst, F], or [B, num_dst, F], which the caller may write to."""
        if not self.is_constant():
            return self._compute()
        # Kernels take an address, which makes a lent tensor one of its own.
        x, factor = original(self.x), self.scale if self.weight is None else self.weight
        kept = reuse.find(x, factor, self.graph, self.reduce)
        if kept is not None:
            return kept
        out = self._compute()
        reuse.keep(x, factor, self.graph, self.reduce, out)
        return out

    def _compute(self) -> Tensor:
        x, batched = self.x, self.x.dim() == 3
        if batched:
            # Batches become columns: each edge is read once for all of them.
            x = x.transpose(0, 1)
        elif session.now.settings.tune == "auto" and x.is_cpu and self.backend in ("", "cpu"):
            backward = x.requires_grad and torch.is_grad_enabled()
            tuning.saw(self.graph, self.reduce, x.size(1), x.dtype, backward)
        if self.first:
            found = arg_extremum(self.graph, x, self.weight, self.reduce)
            return found.masked_fill((self.graph.in_degrees == 0).unsqueeze(1), 0)
        out = reduce_rows(
            self.graph,
            x,
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )
        if batched:
            # A copy even of one batch: autograd refuses writes to views that PyG's results are not.
            return out.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        if self.subtrahend is None:
            return out
        # The sum of w * (a - b) over a row is the sum of w * a, less b times the sum of w.
        of_weights = reduce_rows(
            self.graph,
            x.new_ones(x.size(0), 1),
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )
        return out - self.subtrahend * of_weights

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        backend = backend_for(self.x.device, self.x.dtype, self.backend)
        width = self.x.numel() // max(self.graph.num_src, 1)
        plan = tuning.plan_text(backend, self.graph, self.reduce, width, self.x.dtype, self.x.device)
        form = self.form.name
        if self.scale is not None:
            form = "scaled source, scaled destination"
        elif self.form.weight is not None and self.weight is None:
            form = form.removesuffix(" * weight")
        if self.is_constant():
            form += ", kept while the features do not change"
        return reports.Call(layer, None, form, self.reduce, backend.name, plan)


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
        memory.gained(task.x)


def record_of(layer: Any) -> ClassRecord | None:
    """Return the record of a layer's class; None where its ``propagate`` is its own, or the patch is off."""
    kind = type(layer)
    records: Records | None = getattr(kind.propagate, "onehop_records", None)
    # A decoration of ours has its attributes, and another function behind it.
    if records is None or kind.propagate.__wrapped__ is not records.theirs:
        return None
    if not session.now.pyg or "propagate" in layer.__dict__:
        return None
    record = records.get(kind)
    return record if record is not None and record.holds(kind) else records.made(kind)


def task_of(layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Any:
    """The task that a layer's ``propagate`` would run, or a sentence why there is none."""
    record = record_of(layer)
    return "its propagate is its own" if record is None else prepare(record, layer, edge_index, (), kwargs)


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


def prepare(
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
    listed = type(edge_index) is Tensor and edge_index.layout is torch.strided
    if not listed and is_adjacency(edge_index):
        if isinstance(form, AttentionForm):
            if record.plain:
                return VALUES_ELSEWHERE
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


def _over_matrix(layer: Any, form: Form, reduce: str, matrix: Any, kwargs: dict[str, Any]) -> Task | str:
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
    on_machine = session.now.machine and not found.first
    backend = backend_of(layer, found.x, reduce) if on_machine else session.now.backend
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
    layer: Any, form: AttentionForm, reduce: str, matrix: Any, kwargs: dict[str, Any]
) -> AttentionTask | str:
    """The task of attention over a sparse matrix, or the sentence why there is none."""
    graph = message_edges(layer, matrix)
    if isinstance(graph, str):
        return graph
    kwargs = with_values(form.names, matrix, kwargs)
    weights = kwargs.get("alpha")
    if type(weights) is Pending:
        # PyG gives the values to edge_update likewise, which makes the weights.
        weights.operands = with_values(weights.operands, matrix, weights.operands)
    sizes: list[int | None] = [matrix.size(1), matrix.size(0)]
    edges = graph.num_edges
    call = Propagation(layer, reduce, matrix, graph.col, edges, sizes, kwargs, 0, session.now.backend, graph)
    return prepare_attention(form.kind, call)
