"""The option ``--commands`` of verbs whose machines send DRAM commands."""

from functools import partial
from pathlib import Path
from typing import Any

from onehop.cli.console import Bar
from onehop.errors import ArgumentError
from onehop.machines.dram import Memory, Requests, check_commands, write_commands
from onehop.machines.dram.command_file import program_of


def check(path: Path | None, swept: list[str], memory: Memory, requests: int = 0) -> None:
    """Refuse ``--commands`` before the run if the commands could not be written after it.

    Args:
        path: The file; None if the option was not given.
        swept: Names that ``--sweep`` varies.
        memory: The memory that receives the commands.
        requests: Number of bursts that the memory serves; 0 if unknown.

    Raises:
        ArgumentError: A sweep would have several lists of commands, or the file's form cannot express them.
    """
    if path is None:
        return
    if swept:
        raise ArgumentError("commands: a sweep has several lists of commands; omit --commands or --sweep.")
    check_commands(path, memory, requests)


def write(path: Path, memory: Memory, requests: Requests, bar: Bar) -> dict[str, Any]:
    """Serve requests, write the commands to a file, and return its entry for the JSON."""
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
    """Return this JSON entry as a line of text."""
    counts = ", ".join(f"{name} {count:,}" for name, count in written["counts"].items())
    size = Path(written["file"]).stat().st_size
    return f"{written['file']}, {size / 1e6:,.1f} MB, as {written['program']} has them ({counts})"
