"""A queue of results that a separate thread writes to the disk one after the other."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from onehop import native

SYNC_BYTES = 32 << 20
"""The number of written bytes after which the queue waits for the disk.

At most twice as many bytes are in the page cache, where they take memory from everything else.
"""


class Waiting:
    """A queue of writes, limited in bytes, so that the disk works while results are computed.

    Another thread waits for the disk, while the next results are written.

    Args:
        most_bytes: The maximal number of waiting bytes; a larger write waits alone.
        sync: Returns when everything that was written before is on the disk.
        note: Is called with the number of writes that are on the disk, by the thread that submits them.
    """

    def __init__(self, most_bytes: int, sync: Callable[[], object], note: Callable[[int], None]) -> None:
        self._most, self._sync, self._note = most_bytes, sync, note
        self._writer = ThreadPoolExecutor(1, "onehop-write", native.one_thread)
        self._syncer = ThreadPoolExecutor(1, "onehop-sync", native.one_thread)
        self._queue: deque[tuple[Future[None], int]] = deque()
        self._bytes = self._noted = 0
        # Only the writing thread uses these.
        self._written = self._unsynced = 0
        self._failed = False
        self._syncing: Future[None] | None = None
        # Only the thread that waits for the disk uses this.
        self._on_disk = 0

    def submit(self, write: Callable[[], object], size: int) -> None:
        """Queue ``write`` after all earlier writes; first wait until the queue has room for ``size`` bytes.

        Raises:
            Exception: An earlier write raised it.
        """
        while self._queue and (self._bytes + size > self._most or self._queue[0][0].done()):
            self._settle()
        self._tell()
        self._queue.append((self._writer.submit(self._write, write, size), size))
        self._bytes += size

    def finish(self) -> None:
        """Wait for all writes. The last ones may not be on the disk yet.

        Raises:
            Exception: A write raised it.
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
        # The note counts writes from the first one on, so writes after a failed one do not count.
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
        """End the threads; writes that have not begun are cancelled, and writes on the disk are noted."""
        self._writer.shutdown(cancel_futures=True)
        self._syncer.shutdown()
        self._tell()
