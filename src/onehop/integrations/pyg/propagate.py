"""The fast path: a layer's whole propagation as one aggregation over a cached graph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.distributed.graph import LocalEdges
from onehop.graph import Graph
from onehop.graph.lending import original
from onehop.integrations import memory, reports, tuning
from onehop.integrations.contexts import context_reason
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.attention import prepare
from onehop.integrations.pyg.attention_task import AttentionTask, Propagation
from onehop.integrations.pyg.eligibility import ClassRecord, layer_reason, reduction
from onehop.integrations.pyg.graphs import graph_of, scales_of
from onehop.integrations.pyg.operands import difference_reason, edges_of, source_of, weight_of
from onehop.integrations.pyg.parts import propagate_part
from onehop.integrations.pyg.pending import settled
from onehop.integrations.pyg.placement import apart_reason, backend_of, named, reason_against
from onehop.integrations.pyg.recognise import Attention, Form
from onehop.integrations.pyg.rowwise.task import BlockTask, in_blocks_instead
from onehop.integrations.rows import stand_in
from onehop.ops.aggregate import reduce_rows

Propagate = Callable[..., Any]

_on = False


def switch(on: bool) -> None:
    """Turns the fast path on or off for wrappers that are still held somewhere, as on single instances."""
    global _on
    _on = on


def wrap(theirs: Propagate) -> Propagate:
    """A ``propagate`` that takes the fast path where it applies, and is ``theirs`` where it does not."""
    # Here and not in a module's table: it holds classes, and must die with the class that holds the function.
    records: dict[type, ClassRecord] = {}
    ours = _propagate

    def propagate(self, edge_index, *args, **kwargs):  # type: ignore[no-untyped-def]
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
    if torch.compiler.is_compiling():
        return theirs(layer, edge_index, *args, **kwargs)
    if not _on:
        return theirs(layer, edge_index, *args, **settled(kwargs))
    if type(edge_index) is LocalEdges:
        return propagate_part(records, layer, edge_index, args, kwargs)
    task: Task | AttentionTask | BlockTask | str = _prepare(records, layer, edge_index, args, kwargs)
    if isinstance(task, str):
        kwargs = settled(kwargs)
        task = in_blocks_instead(task, records[type(layer)], layer, edge_index, args, kwargs)
    if isinstance(task, str):
        reports.refuse(layer, task)
        return theirs(layer, edge_index, *args, **settled(kwargs))
    if reports.recording():
        reports.record(task.described(layer))
    memory.gained(task.x)
    return task.run()


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
    """

    form: Form
    reduce: str
    graph: Graph
    x: Tensor
    weight: Tensor | None
    scale: Tensor | None
    subtrahend: Tensor | None
    backend: str

    def is_constant(self) -> bool:
        """Whether the result may be kept, for the features need no gradient."""
        return self.subtrahend is None and reuse.constant(self.x, self._factor, self.graph.num_edges)

    def run(self) -> Tensor:
        """The aggregated messages: [num_dst, F], or [B, num_dst, F], which the caller may write to."""
        if not self.is_constant():
            return self._compute()
        # Kernels take an address, which makes a lent tensor one of its own.
        x, factor = original(self.x), self._factor
        kept = reuse.find(x, factor, self.graph, self.reduce)
        if kept is not None:
            return kept
        out = self._compute()
        reuse.keep(x, factor, self.graph, self.reduce, out)
        return out

    @property
    def _factor(self) -> Tensor | None:
        return self.scale if self.weight is None else self.weight

    def _compute(self) -> Tensor:
        if self.x.dim() == 3:
            # Batches become columns: each edge is read once for all of them.
            return self._aggregate(self.x.transpose(0, 1)).transpose(0, 1).contiguous()
        out = self._aggregate(self.x)
        if self.subtrahend is None:
            return out
        # The sum of w * (a - b) over a row is the sum of w * a, less b times the sum of w.
        return out - self.subtrahend * self._aggregate(self.x.new_ones(self.x.size(0), 1))

    def _aggregate(self, x: Tensor) -> Tensor:
        if x.dim() == 2 and x.is_cpu and self.backend in ("", "cpu"):
            backward = x.requires_grad and torch.is_grad_enabled()
            tuning.saw(self.graph, self.reduce, x.size(1), x.dtype, backward)
        return reduce_rows(
            self.graph,
            x,
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )

    def described(self, layer: Any) -> reports.Call:
        """What ``explain`` shows."""
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


def task_of(layer: Any, edge_index: Any, kwargs: dict[str, Any]) -> Any:
    """The task that a layer's ``propagate`` would run, or a sentence why there is none."""
    if not _on:
        return "the patch is off"
    records = getattr(type(layer).propagate, "onehop_records", None)
    if records is None or "propagate" in layer.__dict__:
        return "its propagate is its own"
    return _prepare(records, layer, edge_index, (), kwargs)


def _prepare(
    records: dict[type, ClassRecord],
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Task | AttentionTask | str:
    """The task, or the sentence why there is none. O(1), but for an edge_index seen for the first time."""
    kind = type(layer)
    record = records.get(kind)
    if record is None or not record.holds(kind):
        record = records[kind] = ClassRecord(kind)
    reason = layer_reason(layer, record)
    if reason is not None:
        return reason
    reduce, reason = reduction(layer)
    if reason is not None:
        return reason
    reason = context_reason()
    if reason is not None:
        return reason
    form = record.form
    assert form is not None
    if args or not _names_fit(form, kwargs):
        return "propagate gets other operands than the message needs"
    edges = edges_of(layer, edge_index, kwargs.get("size"), record.fuses)
    if isinstance(edges, str):
        return edges
    data, sizes = edges
    if isinstance(form, Attention):
        return prepare(form.kind, Propagation(layer, reduce, edge_index, data, sizes, kwargs, named()))
    forwards = layer.flow == "source_to_target"
    x = source_of(layer, kwargs[form.source], sizes, forwards)
    if isinstance(x, str):
        return x
    weight, reason = weight_of(form, kwargs, data.size(1))
    if reason is not None:
        return reason
    subtrahend = None
    if form.subtract is not None:
        subtrahend = kwargs[form.subtract]
        reason = difference_reason(layer, subtrahend, x, reduce, sizes, forwards)
        if reason is not None:
            return reason
    backend = backend_of(layer, x, reduce)
    reason = apart_reason(data, x, weight, subtrahend) or reason_against(x, backend)
    if reason is not None:
        return reason
    receiving = 1 if forwards else 0
    num_dst = sizes[receiving]
    if num_dst is None:
        num_dst = sizes[1 - receiving]
    num_src = x.size(-2)
    graph = graph_of(data, num_src, num_dst, forwards) if type(num_dst) is int else None
    if graph is None:
        return "a node number is out of range, or there are too many nodes"
    scale = None
    if weight is not None and reduce in ("sum", "mean"):
        scale = scales_of(weight, data, num_src, graph.num_dst, x.dtype)
        if scale is not None:
            weight = None
    return Task(form, reduce, graph, x, weight, scale, subtrahend, backend)


def _names_fit(form: Form | Attention, kwargs: dict[str, Any]) -> bool:
    expected = 1 + ("size" in kwargs)
    if isinstance(form, Attention):
        return len(kwargs) - ("size" in kwargs) == len(form.operands) and all(
            name in kwargs for name in form.operands
        )
    if form.source not in kwargs:
        return False
    for name in (form.weight, form.subtract):
        if name is not None:
            if name not in kwargs:
                return False
            expected += 1
    return len(kwargs) == expected
