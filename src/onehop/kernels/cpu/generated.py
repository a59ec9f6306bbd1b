"""Kernels that were generated and compiled on this machine, as plans name them: found, checked and taken in.

They are made by :mod:`onehop.tuner.codegen`, are in the folder ``kernels`` below the cache folder, and are
never made here: where one is missing, damaged, or of another processor, the built-in kernels run, and
:func:`why_not` says why.

A file is a shared library and, behind it, what it can be checked by: a JSON object with the library's digest
and the processor that it was compiled for, the object's length in 8 bytes, and a mark.
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

# Name -> address of its table, and why it is 0.
_taken: dict[str, tuple[int, str]] = {}


def path_of(name: str) -> Path:
    """The path of the kernel of this name."""
    return config.cache_dir() / "kernels" / f"{name}.so"


def address(name: str) -> int:
    """The address of a kernel's table, for the extension; 0 where it cannot be used, which is logged once."""
    entry = _taken.get(name)
    if entry is None:
        entry = _taken[name] = _take(name)
        if entry[1]:
            LOGGER.warning("%s: built-in kernels run. Tune with codegen=True to make it anew.", entry[1])
    return entry[0]


def why_not(name: str) -> str | None:
    """The reason why the kernel of this name cannot be used; None if it can."""
    address(name)
    return _taken[name][1] or None


def forget(name: str | None = None) -> None:
    """Reads a kernel's file (None: any) again when it is next needed. Libraries stay loaded."""
    if name is None:
        _taken.clear()
    else:
        _taken.pop(name, None)
    changes.note()


def seal(library: bytes) -> bytes:
    """A file's contents: the library, and what it can be checked by."""
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
    # What was checked is what is loaded: a copy in memory stays as it is if the file changes. Its
    # number stays taken, because the loader knows libraries by their path.
    copy = os.memfd_create(name)
    with open(copy, "wb", closefd=False) as memory:
        memory.write(_library(contents))
    table, reason = extension.load_generated(f"/proc/self/fd/{copy}")
    return table, f"{what} cannot be loaded ({reason})" if reason else ""


def _library(contents: bytes) -> bytes:
    """A file's contents without what it is checked by."""
    end = len(contents) - len(_MARK) - _LENGTH.size
    (length,) = _LENGTH.unpack_from(contents, end)
    return contents[: max(0, end - length)]


def _refusal(contents: bytes) -> str | None:
    """The reason why a file must not be loaded; None if it may."""
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
