"""What the patched layers say about themselves: why one refused the fast path, and what another did."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LOGGER = logging.getLogger("onehop")

_logged: set[tuple[str, str]] = set()
_recorder: "list[Call] | None" = None


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
    """

    layer: Any
    reason: str | None
    form: str = ""
    reduce: str = ""
    backend: str = ""
    plan: str = ""


def recording() -> bool:
    """Whether somebody listens."""
    return _recorder is not None


def record(call: Call) -> None:
    """Tells whoever listens."""
    if _recorder is not None:
        _recorder.append(call)


def refuse(layer: Any, reason: str) -> None:
    """Notes that ``layer`` goes the framework's own way: one log line for each class of layer and reason."""
    if _recorder is not None:
        _recorder.append(Call(layer, reason))
        return
    kind = type(layer)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if (name, reason) not in _logged:
        _logged.add((name, reason))
        LOGGER.info("%s runs its framework's own code: %s.", name, reason)


def forget_logged() -> None:
    """Lets every refusal be logged once more."""
    _logged.clear()


@contextlib.contextmanager
def recorded() -> Iterator[list[Call]]:
    """Collects what the patched layers do inside the block; refusals are not logged meanwhile."""
    global _recorder
    outer, _recorder = _recorder, []
    calls = _recorder
    try:
        yield calls
    finally:
        _recorder = outer
