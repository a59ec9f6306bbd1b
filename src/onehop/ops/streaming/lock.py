"""One run at a time for each result: two would write into the same file beside it."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

from onehop.errors import StorageError
from onehop.storage import writing


class Held:
    """A lock that this run has.

    The system lets go of it when the process ends, however that happens; a file that is left is taken over.

    Args:
        out: The result.
        path: The lock's file.
        file: The same, open and locked.
    """

    def __init__(self, out: Path, path: Path, file: IO[str]) -> None:
        self._out, self._path, self._file = out, path, file

    def confirm(self) -> None:
        """Looks whether others still see the lock.

        Raises:
            StorageError: Its file was removed or replaced, so that another run may have begun.
        """
        if not _is(self._file, self._path):
            raise StorageError(
                f"out: {self._path} was removed while {self._out} was written, so another run may have "
                f"written to the same files. Remove {self._out}.partial and call again."
            )


@contextlib.contextmanager
def alone(out: Path) -> Iterator[Held]:
    """Keeps other runs with the same result out while the block runs.

    Raises:
        StorageError: Another run is at it, or the file system cannot be written or has no locks.
    """
    path = out.with_name(out.name + ".lock")
    with _locked(out, path) as file:
        try:
            _sign(file, path)
            yield Held(out, path, file)
        finally:
            # A file that cannot be removed does no harm: the next run takes it over.
            with contextlib.suppress(OSError):
                if _is(file, path):
                    path.unlink()


def _locked(out: Path, path: Path) -> IO[str]:
    while True:
        with writing("out", path):
            file = path.open("a+")
        try:
            _lock(out, file)
            # The run that had it may have removed the file between its opening and its locking.
            if _is(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(out: Path, file: IO[str]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"out: {out} is being written by another run ({_holder(file)}). Wait until it is done, end it, "
            "or give another out."
        ) from error
    except OSError as error:
        raise StorageError(
            f"out: the file system of {out} cannot lock files ({error.strerror}), so two runs could mix "
            "their results. Give out on another disk, and move the result."
        ) from error


def _sign(file: IO[str], path: Path) -> None:
    """Says who has the lock."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
    with writing("out", path):
        os.truncate(file.fileno(), 0)
        # Past Python's buffer, which would try once more, and fail once more, when the file is closed.
        os.write(file.fileno(), note.encode())


def _holder(file: IO[str]) -> str:
    """The holder of the lock, as written in its file."""
    try:
        file.seek(0)
        note = json.load(file)
        return f"process {note['pid']} on {note['host']}, since {note['since']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{file.name} does not say whose"


def _is(file: IO[str], path: Path) -> bool:
    """Return whether a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
