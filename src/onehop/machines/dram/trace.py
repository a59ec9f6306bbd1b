"""Requests as text: reads and writes the two trace formats of Ramulator 2.

``load_store``: ``LD 0x1f40`` or ``ST 8000``, with byte addresses. ``read_write``: ``R 0,1,3,2,77,5`` or ``W
…``, with channel, rank, bank group, bank, row, and burst of the row. Each line is one request.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from onehop.errors import ArgumentError, FileFormatError, check_choice
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
        requests: The requests to write.
        memory: The memory to which the addresses belong.
        form: ``load_store`` or ``read_write``.

    Raises:
        ArgumentError: The format is unknown, or a burst is outside the ranks.
        OSError: The file cannot be written.
    """
    requests.check(memory.address_layout)
    check_choice("form", form, FORMATS)
    if form == "load_store":
        addresses = (requests.bursts * memory.dram.organisation.burst_bytes).tolist()
        lines = (
            f"{'ST' if write else 'LD'} {address:#x}\n"
            for write, address in zip(requests.writes.tolist(), addresses, strict=True)
        )
    else:
        fields = memory.address_layout.map(requests.bursts).T.tolist()
        lines = (
            f"{'W' if write else 'R'} 0,{','.join(map(str, of))}\n"
            for write, of in zip(requests.writes.tolist(), fields, strict=True)
        )
    with Path(path).open("w") as file:
        file.writelines(lines)


def read_trace(path: str | Path, memory: Memory) -> Requests:
    """Read requests from a file; the first line determines which of the two formats the file has.

    Args:
        path: The file. Empty lines and lines that begin with # are skipped.
        memory: The memory to which the addresses belong.

    Raises:
        FileFormatError: A line is not a request, is not in the first line's format, or names a place that the
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
        wrong, place = "", list[int]()
        if found is None or form not in (None, found):
            wrong = f"expected a request as {_EXAMPLES}, all of one format, got {line.strip()!r}"
        else:
            form = found
            try:
                place = [int(rest, 0)] if form == "load_store" else [int(part) for part in rest.split(",")]
                wrong = _wrong(form, place, rest)
            except ValueError:
                wrong = f"expected numbers, got {rest!r}"
        if wrong:
            raise FileFormatError(f"{name}, line {number}: {wrong}.")
        places.append(place)
        writes.append(write)
    if form is None:
        raise FileFormatError(f"{name}: expected at least one request, got none.")
    table = np.array(places, dtype=np.int64)
    try:
        if form == "load_store":
            bursts = table[:, 0] // memory.dram.organisation.burst_bytes
        else:
            bursts = memory.address_layout.unmap(table[:, 1:].T)
        requests = Requests(bursts, np.array(writes, dtype=np.uint8))
        requests.check(memory.address_layout)
    except ArgumentError as error:
        raise FileFormatError(f"{name}: {error}") from error
    return requests


def _wrong(form: str, place: list[int], text: str) -> str:
    """Return why the numbers of a line are not a place in the memory; empty if they are."""
    if form == "read_write" and len(place) != 1 + len(FIELDS):
        return f"expected channel, {', '.join(FIELDS)}, got {text!r}"
    if form == "read_write" and place[0] != 0:
        return f"expected channel 0, the one that is simulated, got {place[0]}; split the trace by channel"
    return f"{text!r} is outside the memory" if max(map(abs, place)) >> 62 else ""
