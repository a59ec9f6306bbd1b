"""Values that are set for a block; threads and generators may leave blocks in any order.

Saving the old value and restoring it is correct only if the last block ends first. Here each block has its
own entry, and leaving the block removes only that entry.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class Entry(Generic[T]):
    """The value of one block.

    Attributes:
        value: The value.
        everywhere: Whether it applies to all threads.
        live: Whether the block has not ended.
    """

    __slots__ = ("everywhere", "live", "value")

    def __init__(self, value: T, everywhere: bool = False) -> None:
        self.value, self.everywhere, self.live = value, everywhere, True


class Scoped(Generic[T]):
    """A value that each block sets for its own thread or task, or for the whole process.

    Args:
        name: The name, for debuggers.
        otherwise: The value outside of all blocks.

    Attributes:
        live: The entries of all threads. It is empty if no block is active in any thread; frequently called
            code tests this first, before :meth:`get`.
    """

    def __init__(self, name: str, otherwise: T) -> None:
        self._otherwise = otherwise
        self._here: ContextVar[tuple[Entry[T], ...]] = ContextVar(name, default=())
        self.live: list[Entry[T]] = []

    def get(self) -> T:
        """Return the value of the innermost block around the caller."""
        if self.live:
            # A task begins with the entries of the code that started it, whose blocks may have ended since.
            for entry in reversed(self._here.get()):
                if entry.live:
                    return entry.value
            for entry in reversed(self.live):
                if entry.everywhere:
                    return entry.value
        return self._otherwise

    @contextlib.contextmanager
    def set(self, value: T, everywhere: bool = False) -> Iterator[T]:
        """Set the value inside the block.

        Args:
            value: The value.
            everywhere: Whether other threads without a value of their own also see it.
        """
        entry = Entry(value, everywhere)
        self._here.set((*self._around(), entry))
        self.live.append(entry)
        try:
            yield value
        finally:
            entry.live = False
            self.live.remove(entry)
            self._here.set(self._around())

    def _around(self) -> tuple[Entry[T], ...]:
        return tuple(entry for entry in self._here.get() if entry.live)
