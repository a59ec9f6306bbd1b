"""Reports of patched layers: how each layer ran, or why it did not take the fast path."""

import contextlib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from onehop.integrations import session
from onehop.scopes import Scoped

LOGGER = logging.getLogger("onehop")
IN_BLOCKS = "its message in blocks"
# By the package of a layer's class. MACE's messages are modules of e3nn.
_FRAMEWORKS = {"dgl": "DGL", "nequip": "NequIP", "e3nn": "e3nn"}


class Listener(Protocol):
    """A receiver of every propagation: a list, or an object that sums them up."""

    def append(self, call: "Call", /) -> None:
        """Receives one call."""


listener: Scoped[Listener | None] = Scoped("onehop_listener", None)
"""The receiver of the calls. Code that runs often reads its attribute ``live`` first."""


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
    """Return the name of the framework of the layer's class or a base class; "PyG" if it is no other."""
    packages = {name for kind in type(layer).__mro__ for name in kind.__module__.split(".")}
    return next((framework for package, framework in _FRAMEWORKS.items() if package in packages), "PyG")


def recording() -> bool:
    """Return whether calls are being recorded."""
    return bool(listener.live) and listener.get() is not None


def record(call: Call) -> None:
    """Records a call, inside :func:`recorded` or :func:`heard_by`."""
    hearer = listener.get()
    if hearer is not None:
        hearer.append(call)


def refuse(layer: Any, reason: str) -> None:
    """Notes that a layer runs its framework's own code; logs each class and reason once."""
    if recording():
        record(Call(layer, reason))
    else:
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
    """Collects this thread's calls of patched layers inside the block; their refusals are not logged."""
    calls: list[Call] = []
    with listener.set(calls):
        yield calls


def heard_by(hearer: Listener) -> AbstractContextManager[Listener | None]:
    """Sends ``hearer`` the calls of patched layers inside the block, from this and other threads.

    Calls of threads that have a receiver of their own are not sent. No refusal is logged during the block.
    """
    return listener.set(hearer, everywhere=True)
