"""``--commands`` of the verbs whose machines send DRAM commands."""

from functools import partial
from pathlib import Path
from typing import Any

from onehop.cli.console import Bar
from onehop.errors import ArgumentError
from onehop.machines.dram import Memory, Requests, check_commands, write_commands
from onehop.machines.dram.command_file import program_of


def check(path: Path | None, swept: list[str], memory: Memory, requests: int = 0) -> None:
    """Refuses ``--commands`` before the run, where they could not be written after it.

    Args:
        path: The file; None where it was not given.
        swept: Names that ``--sweep`` varies.
        memory: The memory that sends them.
        requests: Bursts that it serves; 0 where that is not known.

    Raises:
        ArgumentError: A sweep has several lists of commands, or the file's form cannot say them.
    """
    if path is None:
        return
    if swept:
        raise ArgumentError("commands: a sweep has several lists of commands; omit --commands or --sweep.")
    check_commands(path, memory, requests)


def write(path: Path, memory: Memory, requests: Requests, bar: Bar) -> dict[str, Any]:
    """Serves requests, writes the commands to a file, and returns what the JSON says of it."""
    check_commands(path, memory, len(requests))
    bar.describe("writing commands")
    run = memory.commands(requests)
    counts = write_commands(path, run, memory, partial(bar.share, "writing commands"))
    return {
        "file": str(path),
        "program": program_of(path),
        "bursts": len(requests),
        "cycles": run.counts.cycles,
        "counts": counts,
    }


def told(written: dict[str, Any]) -> str:
    """The same as a line."""
    counts = ", ".join(f"{name} {count:,}" for name, count in written["counts"].items())
    size = Path(written["file"]).stat().st_size
    return f"{written['file']}, {size / 1e6:,.1f} MB, as {written['program']} has them ({counts})"
