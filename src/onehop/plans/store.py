"""The file of tuned plans, below the cache folder: one file for each machine (processor or GPU).

A file names the machine and the kernels to which its plans belong. Another machine's file is refused, for
reading and for writing. A file for other kernels, or one that does not name its kernels, is ignored and
rewritten. A digest of the plans detects damage: no part of a damaged file is used, because another number in
a plan may mean another rounding. Writers take a lock and replace the file atomically, so readers never see a
partial file, even if a writer is killed.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onehop import config, processor
from onehop.errors import ArgumentError
from onehop.plans.cpu import REMOVED_FIELD
from onehop.plans.entry import Tuned

LOGGER = logging.getLogger("onehop")

# Increase this number when kernels change so much that old plans are meaningless, when the file format
# changes, or when the tuner requires more of a plan.
KERNELS = 3
# Enough for thousands of plans; a larger file is not onehop's and is not read.
_MOST_BYTES = 64 << 20
# Writing takes milliseconds. A process that holds the lock for longer was stopped, and calls must not wait
# for it.
_LOCK_S, _LOCK_STEP_S = 10.0, 0.01


def machine() -> dict[str, Any]:
    """Return the properties that must match for a plan to be valid: processor and caches, as reported."""
    return {
        "processor": processor.name(),
        "architecture": platform.machine(),
        "caches_bytes": {str(level): size for level, size in processor.caches().items()},
    }


def path(of: dict[str, Any] | None = None) -> Path:
    """Return the file of a machine, named by its properties; None means this processor, here and below."""
    stamp = json.dumps(of or machine(), sort_keys=True).encode()
    return config.cache_dir() / "plans" / f"{hashlib.sha256(stamp).hexdigest()[:16]}.json"


def load(of: dict[str, Any] | None = None) -> list[Any]:
    """Return the entries of the machine's file; empty if there is no file or it must not be used.

    A damaged file is renamed, and the log ``onehop`` gets a warning.
    """
    of = of or machine()
    file = path(of)
    try:
        document = _document(file)
    except FileNotFoundError:
        return []
    except OSError as error:
        LOGGER.warning("%s cannot be read (%s): untuned plans are used.", file, error)
        return []
    except _DamagedFile as error:
        set_aside(str(error), of)
        return []
    if _of_another_machine(document, of):
        LOGGER.warning(
            "%s was tuned on another machine (%s) and is not used; delete it, or tune here with another "
            "ONEHOP_CACHE_DIR.",
            file,
            document["machine"],
        )
        return []
    if document.get("machine") != of or document.get("kernels") != KERNELS:
        return []  # these plans may be worthless, so their cases are tuned again
    entries: list[Any] = document["plans"]
    if document.get("digest") != _digest(entries):
        set_aside(_fault(entries), of)
        return []
    return [entry for entry in entries if not _needs_removed(entry)]


def save(entries: list[dict[str, Any]], of: dict[str, Any] | None = None) -> bool:
    """Add entries to the machine's file; an entry for the same case is replaced.

    Returns:
        Whether the entries are on disk. If the folder cannot be written, or the file belongs to another
        machine, a warning with the reason is logged.
    """
    of = of or machine()
    file = path(of)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file):
            if _is_of_another_machine(file, of):
                LOGGER.warning("%s is another machine's: plans tuned here are not kept.", file)
                return False
            kept = list({_name(entry): entry for entry in [*load(of), *entries]}.values())
            _replace(file, {"machine": of, "kernels": KERNELS, "digest": _digest(kept), "plans": kept})
    except OSError as error:
        LOGGER.warning("%s cannot be written (%s): tuned plans last until this process ends.", file, error)
        return False
    return True


def set_aside(reason: str, of: dict[str, Any] | None = None) -> None:
    """Rename the machine's file, which is damaged for the given reason, so that a new file can replace it."""
    file = path(of)
    aside = file.with_suffix(f".damaged-{os.getpid()}")
    try:
        file.replace(aside)
    except OSError as error:
        LOGGER.warning("%s is damaged (%s) and cannot be moved (%s): it is not used.", file, reason, error)
        return
    LOGGER.warning("%s is damaged (%s): it is now %s, and plans are tuned again.", file, reason, aside.name)


class _DamagedFile(ValueError):
    """Raised if the content of a file is not what was written."""


def _document(file: Path) -> dict[str, Any]:
    """Return the content of a file; its plans are an unchecked list.

    Raises:
        _DamagedFile: The file was not written by :func:`save`, or only in part.
        OSError: The file cannot be read.
    """
    # A pipe instead of the file would block readers forever.
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{file} is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise _DamagedFile(f"it has {status.st_size} bytes, and at most {_MOST_BYTES} are written")
        text = opened.read()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _DamagedFile(str(error)) from error
    if not isinstance(document, dict) or not isinstance(document.get("plans"), list):
        raise _DamagedFile("expected an object with a list of plans")
    return document


def _digest(entries: list[Any]) -> str | None:
    """Return the digest of the plans in a file; None if they are nested too deeply to be plans."""
    try:
        return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return None


def _fault(entries: list[Any]) -> str:
    """Return why entries differ from the entries that were written."""
    for entry in entries:
        try:
            Tuned.from_dict(entry)
        except ArgumentError as error:
            return str(error)
    return "its digest is not that of its plans"


def _needs_removed(entry: Any) -> bool:
    """Return whether an entry's plan needs a kernel that was removed; its case is tuned again."""
    plan = entry.get("plan") if isinstance(entry, dict) else None
    return isinstance(plan, dict) and plan.get(REMOVED_FIELD, 0) != 0


def _is_of_another_machine(file: Path, of: dict[str, Any]) -> bool:
    try:
        return _of_another_machine(_document(file), of)
    except (FileNotFoundError, _DamagedFile):
        return False  # load() renames a damaged file


def _of_another_machine(document: dict[str, Any], of: dict[str, Any]) -> bool:
    """Return whether a field that both have differs; omitted fields count as equal."""
    named = document.get("machine")
    if not isinstance(named, dict):
        return False
    return any(key in named and named[key] != value for key, value in of.items())


def _name(entry: Any) -> str:
    return json.dumps(entry.get("case") if isinstance(entry, dict) else entry, sort_keys=True)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.with_suffix(".lock").open("w") as lock:
        # The lock is released when the file is closed, and when the process dies.
        end = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"another process has kept it locked for {_LOCK_S:g} s") from error
                time.sleep(_LOCK_STEP_S)
        yield


def _replace(file: Path, document: dict[str, Any]) -> None:
    # Only the holder of the lock writes, so other partial files are from killed writers.
    for left in file.parent.glob(f"{file.stem}*.part"):
        left.unlink(missing_ok=True)
    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".part")
    try:
        with os.fdopen(handle, "w") as part:
            json.dump(document, part)
            part.flush()
            os.fsync(handle)
        Path(aside).replace(file)
    finally:
        Path(aside).unlink(missing_ok=True)
