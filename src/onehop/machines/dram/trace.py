"""Requests as text: the two trace formats of Ramulator 2, read and written.

``load_store``: ``LD 0x1f40`` or ``ST 8000``, byte addresses. ``read_write``: ``R 0,1,3,2,77,5`` or ``W …``:
channel, rank, bank group, bank, row, and burst of the row. One request a line.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from onehop.errors import ArgumentError, FileFormatError
from onehop.machines.dram.layout import FIELDS
from onehop.machines.dram.memory import Memory
from onehop.machines.dram.requests import Requests

FORMATS = ("load_store", "read_write")
_OPERATIONS = {
    "LD": ("load_store", 0),
    "ST": ("load_store", 1),
    "R": ("read_write", 0),
    "W": ("read_write", 1),
}
_EXAMPLES = "LD 0x1f40, ST 8000, R 0,1,3,2,77,5 or W 0,1,3,2,77,5"


def write_trace(path: str | Path, requests: Requests, memory: Memory, form: str = "load_store") -> None:
    """Writes requests to a file, one a line.

    Args:
        path: The file.
        requests: What to write.
        memory: The memory whose addresses they are.
        form: ``load_store`` or ``read_write``.

    Raises:
        ArgumentError: The format is unknown, or a burst lies outside the ranks.
        OSError: The file cannot be written.
    """
    requests.check(memory.address_layout)
    if form == "load_store":
        addresses = (requests.bursts * memory.dram.organisation.burst_bytes).tolist()
        lines = (
            f"{'ST' if write else 'LD'} {address:#x}\n"
            for write, address in zip(requests.writes.tolist(), addresses, strict=True)
        )
    elif form == "read_write":
        fields = memory.address_layout.map(requests.bursts).T.tolist()
        lines = (
            f"{'W' if write else 'R'} 0,{','.join(map(str, of))}\n"
            for write, of in zip(requests.writes.tolist(), fields, strict=True)
        )
    else:
        raise ArgumentError(f"form: expected one of {', '.join(FORMATS)}, got {form!r}.")
    with Path(path).open("w") as file:
        file.writelines(lines)


def read_trace(path: str | Path, memory: Memory) -> Requests:
    """Reads requests from a file; its first line determines which of the two formats it has.

    Args:
        path: The file. Empty lines and lines that begin with # are skipped.
        memory: The memory whose addresses they are.

    Raises:
        FileFormatError: A line is not a request, is not in the first one's format, or names a place that the
            memory does not have.
        OSError: The file cannot be read.
    """
    with Path(path).open() as file:
        try:
            return _parse(file, str(path), memory)
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{path}: not text ({error}).") from error


def _parse(lines: Iterable[str], name: str, memory: Memory) -> Requests:
    form, places, writes = None, [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        operation, _, rest = line.strip().partition(" ")
        found, write = _OPERATIONS.get(operation, (None, 0))
        if found is None or (form is not None and found != form):
            raise FileFormatError(
                f"{name}, line {number}: expected a request as {_EXAMPLES}, all of one format, got "
                f"{line.strip()!r}."
            )
        form = found
        try:
            places.append([int(rest, 0)] if form == "load_store" else [int(part) for part in rest.split(",")])
        except ValueError as error:
            raise FileFormatError(f"{name}, line {number}: expected numbers, got {rest!r}.") from error
        if form == "read_write" and len(places[-1]) != 1 + len(FIELDS):
            raise FileFormatError(
                f"{name}, line {number}: expected channel, {', '.join(FIELDS)}, got {rest!r}."
            )
        if form == "read_write" and places[-1][0] != 0:
            raise FileFormatError(
                f"{name}, line {number}: expected channel 0, the one that is simulated, got {places[-1][0]}; "
                "split the trace by channel."
            )
        if max(map(abs, places[-1])) >> 62:
            raise FileFormatError(f"{name}, line {number}: {rest!r} lies outside the memory.")
        writes.append(write)
    if form is None:
        raise FileFormatError(f"{name}: expected at least one request, got none.")
    table = np.array(places, dtype=np.int64)
    if form == "load_store":
        bursts = table[:, 0] // memory.dram.organisation.burst_bytes
    else:
        try:
            bursts = memory.address_layout.unmap(table[:, 1:].T)
        except ArgumentError as error:
            raise FileFormatError(f"{name}: {error}") from error
    requests = Requests(bursts, np.array(writes, dtype=np.uint8))
    try:
        requests.check(memory.address_layout)
    except ArgumentError as error:
        raise FileFormatError(f"{name}: {error}") from error
    return requests
