"""Reports of patched layers: why one refused the fast path, and how another ran."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from onehop.integrations import session

LOGGER = logging.getLogger("onehop")
IN_BLOCKS = "its message in blocks"


class Listener(Protocol):
    """Hears of every propagation: a list, or an object that adds them up."""

    def append(self, call: "Call", /) -> None:
        """Takes one."""


listener: Listener | None = None
"""Hears what patched layers do, while :func:`recorded` or :func:`heard_by` is at work."""


@dataclass(frozen=True, slots=True)
class Call:
    """One propagation of one layer.

    Attributes:
        layer: The layer.
        reason: Why the framework's own code ran; None if the fast path did.
        form: What the fast path computed, such as "source * weight".
        reduce: "sum", "mean", "max" or "min".
        backend: Who ran it.
        plan: How.
        program: What a compiled message does, a line a step; empty for all else.
    """

    layer: Any
    reason: str | None
    form: str = ""
    reduce: str = ""
    backend: str = ""
    plan: str = ""
    program: str = ""


def framework_of(layer: Any) -> str:
    """Return "DGL" or "PyG": whose layer it is, or whose layers its class extends."""
    modules = (kind.__module__.split(".") for kind in type(layer).__mro__)
    return "DGL" if any("dgl" in module for module in modules) else "PyG"


def recording() -> bool:
    """Return whether calls are being recorded."""
    return listener is not None


def record(call: Call) -> None:
    """Adds a call to the recording, if there is one."""
    if listener is not None:
        listener.append(call)


def refuse(layer: Any, reason: str) -> None:
    """Notes that ``layer`` goes the framework's own way: one log line for each class of layer and reason."""
    if listener is not None:
        listener.append(Call(layer, reason))
        return
    log(type(layer), reason)


def log(kind: type, reason: str) -> None:
    """Writes why layers of a class go the framework's own way: one log line for each class and reason."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    logged = session.now.logged
    if (name, reason) not in logged:
        logged.add((name, reason))
        LOGGER.info("%s runs its framework's own code: %s.", name, reason)


@contextlib.contextmanager
def recorded() -> Iterator[list[Call]]:
    """Collects what the patched layers do inside the block; refusals are not logged meanwhile."""
    calls: list[Call] = []
    with heard_by(calls):
        yield calls


@contextlib.contextmanager
def heard_by(hearer: Listener) -> Iterator[None]:
    """Tells ``hearer`` what the patched layers do inside the block; refusals are not logged meanwhile."""
    global listener
    outer, listener = listener, hearer
    try:
        yield
    finally:
        listener = outer
