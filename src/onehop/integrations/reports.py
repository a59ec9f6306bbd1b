"""Reports of patched layers: how each ran, or why it did not take the fast path."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from onehop.integrations import session

LOGGER = logging.getLogger("onehop")
IN_BLOCKS = "its message in blocks"


class Listener(Protocol):
    """Receives every propagation: a list, or an object that sums them up."""

    def append(self, call: "Call", /) -> None:
        """Receives one call."""


listener: Listener | None = None
"""Receives the calls of patched layers inside :func:`recorded` and :func:`heard_by`; None outside of them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One propagation of one layer.

    Attributes:
        layer: The layer.
        reason: Why the framework's own code ran; None if the fast path did.
        form: What the fast path computed, such as "source * weight".
        reduce: "sum", "mean", "max" or "min".
        backend: The name of the backend that ran it.
        plan: The plan that it ran with.
        program: The steps of a compiled message, one a line; empty for any other.
    """

    layer: Any
    reason: str | None
    form: str = ""
    reduce: str = ""
    backend: str = ""
    plan: str = ""
    program: str = ""


def framework_of(layer: Any) -> str:
    """Return "DGL" or "PyG": the framework that the layer, or its base class, belongs to."""
    modules = (kind.__module__.split(".") for kind in type(layer).__mro__)
    return "DGL" if any("dgl" in module for module in modules) else "PyG"


def recording() -> bool:
    """Return whether calls are being recorded."""
    return listener is not None


def record(call: Call) -> None:
    """Records a call, inside :func:`recorded` or :func:`heard_by`."""
    if listener is not None:
        listener.append(call)


def refuse(layer: Any, reason: str) -> None:
    """Notes that a layer runs its framework's own code; logs each class and reason once."""
    if listener is not None:
        listener.append(Call(layer, reason))
        return
    log(type(layer), reason)


def log(kind: type, reason: str) -> None:
    """Logs why layers of a class run their framework's own code; each class and reason once."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    logged = session.now.logged
    if (name, reason) not in logged:
        logged.add((name, reason))
        LOGGER.info("%s runs its framework's own code: %s.", name, reason)


@contextlib.contextmanager
def recorded() -> Iterator[list[Call]]:
    """Collects the calls of patched layers inside the block. Refusals are not logged meanwhile."""
    calls: list[Call] = []
    with heard_by(calls):
        yield calls


@contextlib.contextmanager
def heard_by(hearer: Listener) -> Iterator[None]:
    """Sends ``hearer`` the calls of patched layers inside the block. Refusals are not logged meanwhile."""
    global listener
    outer, listener = listener, hearer
    try:
        yield
    finally:
        listener = outer
