"""Writing to disk: the system's errors as sentences, and files that are written atomically."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from onehop.errors import FileFormatError, StorageError

STANDARD_OUTPUT = Path("-")
"""The path that means standard output, for command lines."""

_ROOM = "Make room or give another place, and call again"
_PERMISSION = "Give a place that this user may write to"
_ADVICE = {
    errno.ENOENT: "Make its folder first, or give another place",
    errno.ENOTDIR: "A part of the path is not a folder: give another place",
    errno.EISDIR: "It is a folder: give the name of a file",
    errno.ENAMETOOLONG: "Give a shorter name",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: _PERMISSION,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
}


@contextlib.contextmanager
def writing(argument: str, path: Path, size: int | None = None, after: str = "") -> Iterator[None]:
    """Turn the system's errors while writing to a path into instructions.

    Args:
        argument: The argument that the path comes from.
        path: The path.
        size: Number of bytes to be written, if known.
        after: Further information for the caller.

    Raises:
        StorageError: The system refuses.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        what = str(path) if size is None else f"{size} bytes to {path}"
        advice = _ADVICE.get(error.errno or 0, "Give another place") + (f"; {after}" if after else "")
        failure = StorageError(f"{argument}: cannot write {what} ({error.strerror or error}). {advice}.")
        failure.errno = error.errno
        raise failure from error


_KINDS = (("is_dir", "a folder"), ("is_fifo", "a pipe"), ("is_socket", "a socket"))


def check_is_file(path: Path) -> None:
    """Raise unless a path is a regular file, which can be read more than once.

    Raises:
        FileFormatError: The path is not a regular file.
        FileNotFoundError: The path does not exist.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if not path.is_file():
        kind = next((what for test, what in _KINDS if getattr(path, test)()), "a device")
        raise FileFormatError(
            f"{path}: expected a file, got {kind}. Write what it holds to a file, and give that."
        )


def write_all(file: BinaryIO | FileIO, data: memoryview) -> None:
    """Write all bytes to an unbuffered file, which may accept only some of them at a time."""
    view = data.cast("B") if data.nbytes else data
    while view.nbytes:
        view = view[file.write(view) :]


def check(argument: str, path: str | os.PathLike[str]) -> None:
    """Raise unless a file can probably be written; missing folders will be created later.

    Args:
        argument: The argument that the path comes from.
        path: The path.

    Raises:
        StorageError: The file could not be written.
    """
    goal = Path(path)
    with writing(argument, goal):
        if goal.is_dir():
            raise _error(errno.EISDIR)
        if goal.exists() and not goal.is_file():
            return
        folder = next(each for each in goal.resolve().parents if each.exists())
        if not folder.is_dir():
            raise _error(errno.ENOTDIR)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _error(errno.EACCES)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def write_text(argument: str, path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically: on any error, an earlier file is left unchanged.

    Missing folders are created. If the path is not a regular file (a terminal, a pipe, ``/dev/stdout``), it
    is written directly.

    Raises:
        StorageError: The system reports an error.
    """
    write_whole(argument, path, lambda file: file.write(text.encode()))


def write_whole(argument: str, path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically, by a function that writes to a file object."""
    goal = Path(path)
    with writing(argument, goal, after="an earlier file is untouched"):
        if goal.exists() and not goal.is_file():
            with goal.open("wb") as file:
                write(file)
            return
        goal = goal.resolve()  # a link's target is replaced, not the link
        goal.parent.mkdir(parents=True, exist_ok=True)
        beside = goal.with_name(f".{goal.name[:200]}.{os.getpid()}.part")
        try:
            with beside.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(goal)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
