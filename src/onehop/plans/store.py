"""The file of tuned plans: one for each machine, processor or GPU, below the cache folder.

A file says which machine and which kernels its plans are for. Another machine's is refused, for reading and
for writing; one of other kernels, or that does not say, is not used and is written anew. Writers lock each
other out and replace the file as a whole, so that no reader ever sees half of one.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onehop import config, processor

LOGGER = logging.getLogger("onehop")

# Raise it when kernels change so much that old plans mean nothing, or when the file changes.
KERNELS = 2


def machine() -> dict[str, Any]:
    """What must agree for a plan to mean anything: processor and caches, as the system tells them."""
    return {
        "processor": processor.name(),
        "architecture": platform.machine(),
        "caches_bytes": {str(level): size for level, size in processor.caches().items()},
    }


def path(of: dict[str, Any] | None = None) -> Path:
    """The file of a machine, told by what must agree; None means this processor's, as in all that follows."""
    told = json.dumps(of or machine(), sort_keys=True).encode()
    return config.cache_dir() / "plans" / f"{hashlib.sha256(told).hexdigest()[:16]}.json"


def load(of: dict[str, Any] | None = None) -> list[Any]:
    """The entries of the machine's file; none where there is no file, or one that must not be used.

    A damaged file is set aside, with a warning in the log ``onehop``.
    """
    of = of or machine()
    file = path(of)
    try:
        document = json.loads(file.read_bytes())
        if not isinstance(document, dict) or not isinstance(document.get("plans"), list):
            raise ValueError("expected an object with a list of plans")
    except FileNotFoundError:
        return []
    except OSError as error:
        LOGGER.warning("%s cannot be read (%s): untuned plans are used.", file, error)
        return []
    except ValueError as error:
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
        return []  # nobody knows what these plans are worth: they are tuned again
    entries: list[Any] = document["plans"]
    return entries


def save(entries: list[dict[str, Any]], of: dict[str, Any] | None = None) -> bool:
    """Adds entries to the machine's file; one for the same case is replaced.

    Returns:
        Whether they are on disk. Where the folder cannot be written, or the file is another machine's, the
        reason is logged as a warning.
    """
    of = of or machine()
    file = path(of)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file):
            if file.exists() and _of_another_machine(_document(file), of):
                LOGGER.warning("%s is another machine's: plans tuned here are not kept.", file)
                return False
            kept = {_name(entry): entry for entry in [*load(of), *entries]}
            _replace(file, {"machine": of, "kernels": KERNELS, "plans": list(kept.values())})
    except OSError as error:
        LOGGER.warning("%s cannot be written (%s): tuned plans last until this process ends.", file, error)
        return False
    return True


def set_aside(reason: str, of: dict[str, Any] | None = None) -> None:
    """Renames the machine's file, which is damaged for this reason, so that a new one can take its place."""
    file = path(of)
    aside = file.with_suffix(f".damaged-{os.getpid()}")
    try:
        file.replace(aside)
    except OSError as error:
        LOGGER.warning("%s is damaged (%s) and cannot be moved (%s): it is not used.", file, reason, error)
        return
    LOGGER.warning("%s is damaged (%s): it is now %s, and plans are tuned anew.", file, reason, aside.name)


def _document(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except ValueError:
        return {}  # load() sets it aside


def _of_another_machine(document: Any, of: dict[str, Any]) -> bool:
    """Whether a field that both name differs: what a file does not tell, it may have right."""
    told = document.get("machine") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return False
    return any(key in told and told[key] != value for key, value in of.items())


def _name(entry: Any) -> str:
    return json.dumps(entry.get("case") if isinstance(entry, dict) else entry, sort_keys=True)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed, and when the process dies
        yield


def _replace(file: Path, document: dict[str, Any]) -> None:
    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".part")
    try:
        with os.fdopen(handle, "w") as part:
            json.dump(document, part)
        Path(aside).replace(file)
    finally:
        Path(aside).unlink(missing_ok=True)
