"""The layer of DGL that is running, and whether the patch is for it.

DGL's operators do not know who called them, so a wrapper round every layer's ``forward`` notes the layer.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from onehop.integrations import session
from onehop.integrations.rows import stand_in

Function = Callable[..., Any]
Body = Callable[[Function, Any, tuple[Any, ...], dict[str, Any]], Any]


class OutsideLayers:
    """Stands for code that calls DGL's operators, or ``update_all``, outside DGL's own layers."""


OUTSIDE = OutsideLayers()

_running: ContextVar[Any] = ContextVar("onehop_dgl_layer", default=OUTSIDE)


def is_on() -> bool:
    """Return whether the patch is in place, and torch runs operations one by one."""
    return not torch.compiler.is_compiling() and session.now.dgl


def layer() -> Any:
    """The layer whose forward is running; :data:`OUTSIDE` without one."""
    return _running.get()


def selection_reason() -> str | None:
    """Return why the patch is not for the layer that is running; None if it is."""
    layers = session.now.layers
    if layers is None or not layers.isdisjoint(kind.__name__ for kind in type(layer()).__mro__):
        return None
    return "patch(only=...) leaves its class out"


def noting(theirs: Function, body: Body | None = None) -> Function:
    """A ``forward`` that notes the layer, and runs ``body`` in place of ``theirs`` where there is one."""
    ours = _forward

    def forward(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        return ours(theirs, body, self, args, kwargs)

    return stand_in(theirs, forward)


def _forward(
    theirs: Function, body: Body | None, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if not is_on():
        return theirs(layer, *args, **kwargs)
    before = _running.set(layer)
    try:
        return theirs(layer, *args, **kwargs) if body is None else body(theirs, layer, args, kwargs)
    finally:
        _running.reset(before)
