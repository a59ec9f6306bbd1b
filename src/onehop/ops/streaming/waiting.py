"""Results on their way to the disk: written one after the other by a thread of their own."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from onehop import native

SYNC_BYTES = 32 << 20
"""After so many bytes the disk is waited for.

Twice as many are in the page cache at most, where they take memory from everything else.
"""


class Waiting:
    """A queue of writes, bounded in bytes, so that the disk has work while other things are done.

    The disk is waited for by another thread, while the next results are written.

    Args:
        most_bytes: So many may wait; a write that is larger waits alone.
        sync: Returns when all that was written before is on the disk.
        note: Told how many writes are on the disk, by the thread that submits them.
    """

    def __init__(self, most_bytes: int, sync: Callable[[], object], note: Callable[[int], None]) -> None:
        self._most, self._sync, self._note = most_bytes, sync, note
        self._writer = ThreadPoolExecutor(1, "onehop-write", native.one_thread)
        self._syncer = ThreadPoolExecutor(1, "onehop-sync", native.one_thread)
        self._queue: deque[tuple[Future[None], int]] = deque()
        self._bytes = self._noted = 0
        # Of the writing thread.
        self._written = self._unsynced = 0
        self._failed = False
        self._syncing: Future[None] | None = None
        # Of the thread that waits for the disk.
        self._on_disk = 0

    def submit(self, write: Callable[[], object], size: int) -> None:
        """Has ``write`` done, after all before it; first waits until ``size`` bytes more may wait.

        Raises:
            Exception: What an earlier write raised.
        """
        while self._queue and (self._bytes + size > self._most or self._queue[0][0].done()):
            self._settle()
        self._tell()
        self._queue.append((self._writer.submit(self._write, write, size), size))
        self._bytes += size

    def finish(self) -> None:
        """Waits for all of them. The last ones may not be on the disk yet.

        Raises:
            Exception: What one of them raised.
        """
        while self._queue:
            self._settle()
        if self._syncing is not None:
            self._syncing.result()
        self._tell()

    def _settle(self) -> None:
        written, size = self._queue.popleft()
        self._bytes -= size
        written.result()

    def _tell(self) -> None:
        done = self._on_disk
        if done > self._noted:
            self._note(done)
            self._noted = done

    def _write(self, write: Callable[[], object], size: int) -> None:
        # What is noted is a number of writes from the first one on: none counts behind one that failed.
        if self._failed:
            return
        try:
            write()
            self._written += 1
            self._unsynced += size
            if self._unsynced >= SYNC_BYTES:
                self._unsynced = 0
                if self._syncing is not None:
                    self._syncing.result()
                self._syncing = self._syncer.submit(self._wait_for_disk, self._written)
        except BaseException:
            self._failed = True
            raise

    def _wait_for_disk(self, written: int) -> None:
        self._sync()
        self._on_disk = written

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the threads; writes that have not begun are given up, and those on the disk are told of."""
        self._writer.shutdown(cancel_futures=True)
        self._syncer.shutdown()
        self._tell()
