"""Values that hold for the length of a block, which threads and generators may leave in any order.

To save what was there and put it back is right only where the block that began last ends first. Here each
block has an entry of its own, and leaving it removes that entry and no other.
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
        everywhere: Whether it holds in all threads.
        live: Whether the block lasts.
    """

    __slots__ = ("everywhere", "live", "value")

    def __init__(self, value: T, everywhere: bool = False) -> None:
        self.value, self.everywhere, self.live = value, everywhere, True


class Scoped(Generic[T]):
    """A value that each block sets for its own thread or task, or for the whole process.

    Args:
        name: For debuggers.
        otherwise: The value outside of all blocks.

    Attributes:
        live: The entries of all threads. It is empty where no block lasts anywhere: code that is called often
            asks for that first, and then for :meth:`get`.
    """

    def __init__(self, name: str, otherwise: T) -> None:
        self._otherwise = otherwise
        self._here: ContextVar[tuple[Entry[T], ...]] = ContextVar(name, default=())
        self.live: list[Entry[T]] = []

    def get(self) -> T:
        """Return the value of the innermost block around the caller."""
        if self.live:
            # A task begins with the entries of whatever started it, whose blocks may have ended since.
            for entry in reversed(self._here.get()):
                if entry.live:
                    return entry.value
            for entry in reversed(self.live):
                if entry.everywhere:
                    return entry.value
        return self._otherwise

    @contextlib.contextmanager
    def set(self, value: T, everywhere: bool = False) -> Iterator[T]:
        """Sets the value inside the block.

        Args:
            value: The value.
            everywhere: Whether threads see it too that set none of their own.
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
