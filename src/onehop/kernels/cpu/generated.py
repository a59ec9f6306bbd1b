"""Loading and checking of kernels that were generated and compiled on this machine, by the names in plans.

:mod:`onehop.tuner.codegen` makes them, in the folder ``kernels`` of the cache folder. They are never made
here: if a kernel is missing, damaged, or for another processor, the built-in kernels run, and :func:`why_not`
returns the reason.

A file is a shared library followed by data to check it: a JSON object with the library's digest and the
processor for which it was compiled, the object's length in 8 bytes, and a mark.
"""

import hashlib
import json
import logging
import os
import struct
from pathlib import Path

from onehop import config, processor
from onehop.native import extension
from onehop.plans import changes

LOGGER = logging.getLogger("onehop")

_MARK = b"onehop-k"
_LENGTH = struct.Struct("<Q")

# Kernel name -> address of its table, and the reason if the address is 0.
_taken: dict[str, tuple[int, str]] = {}


def path_of(name: str) -> Path:
    """Return the path of the kernel with this name."""
    return config.cache_dir() / "kernels" / f"{name}.so"


def address(name: str) -> int:
    """Return the address of a kernel's table; 0 if the kernel cannot be used, which is logged once."""
    entry = _taken.get(name)
    if entry is None:
        entry = _taken[name] = _take(name)
        if entry[1]:
            LOGGER.warning("%s: built-in kernels run. Tune with codegen=True to make it anew.", entry[1])
    return entry[0]


def why_not(name: str) -> str | None:
    """Return why the kernel with this name cannot be used; None if it can."""
    address(name)
    return _taken[name][1] or None


def forget(name: str | None = None) -> None:
    """Makes a kernel's file (None: all files) be read again at its next use. Libraries stay loaded."""
    if name is None:
        _taken.clear()
    else:
        _taken.pop(name, None)
    changes.note()


def seal(library: bytes) -> bytes:
    """Return a file's contents: the library, followed by the data to check it."""
    stamp = json.dumps({"sha256": hashlib.sha256(library).hexdigest(), "processor": _processor()}).encode()
    return library + stamp + _LENGTH.pack(len(stamp)) + _MARK


def _take(name: str) -> tuple[int, str]:
    file = path_of(name)
    what = f"generated kernel {name}"
    try:
        contents = file.read_bytes()
    except OSError as error:
        return 0, f"{what} cannot be read ({error.strerror or error})"
    reason = _refusal(contents)
    if reason is not None:
        return 0, f"{what} {reason}"
    # The checked contents are loaded from a copy in memory, which does not change with the file. Its file
    # descriptor stays open, because the loader identifies libraries by their path.
    copy = os.memfd_create(name)
    with open(copy, "wb", closefd=False) as memory:
        memory.write(_library(contents))
    table, reason = extension.load_generated(f"/proc/self/fd/{copy}")
    return table, f"{what} cannot be loaded ({reason})" if reason else ""


def _library(contents: bytes) -> bytes:
    """Return a file's contents without the data to check it."""
    end = len(contents) - len(_MARK) - _LENGTH.size
    (length,) = _LENGTH.unpack_from(contents, end)
    return contents[: max(0, end - length)]


def _refusal(contents: bytes) -> str | None:
    """Return why a file must not be loaded; None if it may."""
    end = len(contents) - len(_MARK) - _LENGTH.size
    if end < 0 or not contents.endswith(_MARK):
        return "is truncated or damaged"
    library = _library(contents)
    try:
        stamp = json.loads(contents[len(library) : end])
    except ValueError:
        return "is damaged"
    if stamp.get("sha256") != hashlib.sha256(library).hexdigest():
        return "is damaged"
    if stamp.get("processor") != _processor():
        return f"was compiled for another processor ({stamp.get('processor')})"
    return None


def _processor() -> str:
    digest = hashlib.sha256(processor.features().encode()).hexdigest()[:16]
    return f"{processor.name()}, features {digest}"
