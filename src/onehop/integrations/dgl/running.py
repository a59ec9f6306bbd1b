"""The layer of DGL that is running, and whether the patch includes it.

DGL's operators do not know their caller, so a wrapper of every layer's ``forward`` notes the layer.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from onehop.integrations import session

Function = Callable[..., Any]
Body = Callable[[Function, Any, tuple[Any, ...], dict[str, Any]], Any]


class OutsideLayers:
    """The layer of code that calls DGL's operators, or ``update_all``, outside DGL's layers."""


OUTSIDE = OutsideLayers()

_running: ContextVar[Any] = ContextVar("onehop_dgl_layer", default=OUTSIDE)


def is_on() -> bool:
    """Return whether DGL is patched and torch is not compiling."""
    return not torch.compiler.is_compiling() and session.now.dgl


def layer() -> Any:
    """The layer whose forward is running; :data:`OUTSIDE` if there is none."""
    return _running.get()


def selection_reason() -> str | None:
    """Return why the patch excludes the layer that is running; None if it does not."""
    layers = session.now.layers
    if layers is None or not layers.isdisjoint(kind.__name__ for kind in type(layer()).__mro__):
        return None
    return "patch(only=...) leaves its class out"


def forward(body: Body | None, theirs: Function, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a layer's ``forward``, or ``body`` instead if that is given, and notes the layer meanwhile."""
    before = _running.set(layer)
    try:
        return theirs(layer, *args, **kwargs) if body is None else body(theirs, layer, args, kwargs)
    finally:
        _running.reset(before)
