"""A lock that allows one run at a time for each result, because two would write to the same partial file."""

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
    """A lock that this run holds.

    The system releases it when the process ends for any reason; a lock file that is left is reused.

    Args:
        out: The result.
        path: The path of the lock file.
        file: The lock file, open and locked.
    """

    def __init__(self, out: Path, path: Path, file: IO[str]) -> None:
        self._out, self._path, self._file = out, path, file

    def confirm(self) -> None:
        """Check that the lock is still visible to other runs.

        Raises:
            StorageError: The lock file was removed or replaced, so another run may have begun.
        """
        if not _is(self._file, self._path):
            raise StorageError(
                f"out: {self._path} was removed while {self._out} was written, so another run may have "
                f"written to the same files. Remove {self._out}.partial and call again."
            )


@contextlib.contextmanager
def alone(out: Path) -> Iterator[Held]:
    """Lock a result while the block runs, so that no other run writes it.

    Raises:
        StorageError: Another run is writing the result, or the file system is not writable or has no locks.
    """
    path = out.with_name(out.name + ".lock")
    with _locked(out, path) as file:
        try:
            _sign(file, path)
            yield Held(out, path, file)
        finally:
            # If the file cannot be removed, the next run reuses it.
            with contextlib.suppress(OSError):
                if _is(file, path):
                    path.unlink()


def _locked(out: Path, path: Path) -> IO[str]:
    while True:
        with writing("out", path):
            file = path.open("a+")
        try:
            _lock(out, file)
            # The run that held the lock may have removed the file after it was opened here and before it was
            # locked.
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
    """Writes to the lock file who holds the lock."""
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    note = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
    with writing("out", path):
        os.truncate(file.fileno(), 0)
        # This bypasses Python's buffer, which after a failure would try again when the file is closed.
        os.write(file.fileno(), note.encode())


def _holder(file: IO[str]) -> str:
    """Return the holder of the lock, as written in the lock file."""
    try:
        file.seek(0)
        note = json.load(file)
        return f"process {note['pid']} on {note['host']}, since {note['since']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{file.name} does not say whose"


def _is(file: IO[str], path: Path) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
