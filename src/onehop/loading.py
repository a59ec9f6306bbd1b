"""Notices that a part of onehop was imported, for parts above it that are not to import it themselves."""

from collections.abc import Callable

_loaded: set[str] = set()
_waiting: dict[str, list[Callable[[], None]]] = {}


def note_loaded(part: str) -> None:
    """Notes that a part has been imported, and calls everybody who waits for it."""
    _loaded.add(part)
    for call in _waiting.pop(part, []):
        call()


def when_loaded(part: str, call: Callable[[], None]) -> None:
    """Calls once: now if the part has been imported, else as soon as it is."""
    if part in _loaded:
        call()
    else:
        _waiting.setdefault(part, []).append(call)


def is_loaded(part: str) -> bool:
    """Return whether a part has been imported."""
    return part in _loaded
