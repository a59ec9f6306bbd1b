"""Results on their way to the disk: written one after the other by a thread of their own."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from onehop import native


class Waiting:
    """A queue of writes, bounded in bytes, so that the disk has work while other things are done.

    Args:
        most_bytes: So many may wait; a write that is larger waits alone.
        note: Told the number of each write that has one, when it and all before it are done.
    """

    def __init__(self, most_bytes: int, note: Callable[[int], None]) -> None:
        self._most, self._note = most_bytes, note
        self._writer = ThreadPoolExecutor(1, "onehop-write", native.one_thread)
        self._queue: deque[tuple[Future[object], int, int | None]] = deque()
        self._bytes = 0

    def submit(self, write: Callable[[], object], size: int, number: int | None) -> None:
        """Has ``write`` done, after all before it; first waits until ``size`` bytes more may wait.

        Raises:
            Exception: What an earlier write raised.
        """
        while self._queue and (self._bytes + size > self._most or self._queue[0][0].done()):
            self._settle()
        self._queue.append((self._writer.submit(write), size, number))
        self._bytes += size

    def finish(self) -> None:
        """Waits for all of them.

        Raises:
            Exception: What one of them raised.
        """
        while self._queue:
            self._settle()

    def _settle(self) -> None:
        written, size, number = self._queue.popleft()
        self._bytes -= size
        written.result()
        if number is not None:
            self._note(number)

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the thread; writes that have not begun are given up."""
        self._writer.shutdown(cancel_futures=True)
