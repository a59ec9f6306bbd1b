"""Operands of DGL's operators: the layer that is running, the graph, and the tensors.

DGL's operators do not know their caller, so a wrapper of every layer's ``forward`` notes the layer.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.backends import backend_for, refusal
from onehop.integrations import reports, session, tuning
from onehop.integrations.dgl.graphs import Structure, device_of, structure_of
from onehop.integrations.rows import Function, Leave
from onehop.ops.contexts import context_reason

FLOATS = (torch.float32, torch.float64)
LEFT_TO_DGL = "DGL is left to report what does not fit"

Body = Callable[[Function, Any, tuple[Any, ...], dict[str, Any]], Any]


class OutsideLayers:
    """Stands for the layer if DGL's operators or ``update_all`` are called outside of DGL's layers."""


OUTSIDE = OutsideLayers()

_running: ContextVar[Any] = ContextVar("onehop_dgl_layer", default=OUTSIDE)


def is_on() -> bool:
    """Return whether DGL is patched and torch is not compiling."""
    return not torch.compiler.is_compiling() and session.now.dgl


def layer() -> Any:
    """Return the layer whose ``forward`` is running; :data:`OUTSIDE` if there is none."""
    return _running.get()


def forward(body: Body | None, theirs: Function, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a layer's ``forward``; :func:`layer` returns this layer meanwhile.

    Args:
        body: Runs first; ``theirs`` runs if it is None or raises :class:`Leave`.
        theirs: DGL's ``forward``.
        layer: The layer.
        *args: Positional arguments of ``forward``.
        **kwargs: Keyword arguments of ``forward``.
    """
    before = _running.set(layer)
    try:
        if body is not None:
            try:
                return body(theirs, layer, args, kwargs)
            except Leave as why:
                reports.refuse(layer, why.sentence)
        return theirs(layer, *args, **kwargs)
    finally:
        _running.reset(before)


def operator(body: Function, *args: Any, **kwargs: Any) -> Any:
    """Runs an operator of onehop, and reports why if it raises :class:`Leave`."""
    try:
        return body(*args, **kwargs)
    except Leave as why:
        reports.refuse(layer(), why.sentence)
        raise


def record(
    structure: Structure, x: Tensor, form: str, reduce: str, what: str, width: int, heads: int = 1
) -> None:
    """Records how the running layer was computed, if calls are being recorded.

    Args:
        structure: The edges.
        x: A tensor of the dtype and device of the operands.
        form: What was computed.
        reduce: How messages were reduced.
        what: The operation, as :func:`onehop.integrations.tuning.plan_text` takes it.
        width: Columns of a head.
        heads: Number of heads.
    """
    if reports.recording():
        backend = backend_for(x.device, x.dtype)
        plan = tuning.plan_text(backend, structure.graph, what, width, x.dtype, x.device, heads)
        reports.record(reports.Call(layer(), None, form, reduce, backend.name, plan))


def need(condition: object, sentence: str = LEFT_TO_DGL) -> None:
    """Raises :class:`Leave` with the sentence unless the condition holds."""
    if not condition:
        raise Leave(sentence)


def structure_for(index: Any) -> Structure:
    """Return the structure of ``g._graph``.

    Raises:
        Leave: The graph is not supported, so DGL's own code runs.
    """
    reason = context_reason()
    if reason is not None:
        raise Leave(reason)
    layers = session.now.layers
    chosen = layers is None or not layers.isdisjoint(kind.__name__ for kind in type(layer()).__mro__)
    need(chosen, "patch(only=...) leaves its class out")
    need(not torch._C._is_any_autocast_enabled(), "autocast decides on the dtypes of its operands")
    types = index.number_of_etypes()
    need(types == 1, f"its graph has {types} types of edges, and onehop takes one at a time")
    device = device_of(index)
    # On the CPU, every supported dtype has a fast path.
    reason = None if device.type == "cpu" else refusal("", device, torch.float32)
    if reason is not None:
        raise Leave(f"its graph is on {device}, which has no backend: {reason}")
    return structure_of(index, device)


def check_tensor(name: str, x: Any, rows: int, structure: Structure) -> None:
    """Raises :class:`Leave` unless x is a plain float32 or float64 tensor with ``rows`` rows."""
    if type(x) is not Tensor and type(x) is not Parameter:
        raise Leave(f"the {name} are of type {type(x).__name__}")
    if x.dtype not in FLOATS:
        raise Leave(f"the {name} are {str(x.dtype).removeprefix('torch.')}, not float32 or float64")
    need(x.layout is torch.strided, f"the {name} are not a dense tensor")
    need(x.device == structure.device and x.dim() > 0 and x.size(0) == rows)
