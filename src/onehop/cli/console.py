"""Consoles: results go to standard output; progress, and reports on scripts, to standard error."""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from onehop.bench.stamp import machine_line
from onehop.cli.options import set_threads

# The width where output is no terminal, as in a file: tables are not to be cut there.
_FILE_WIDTH = 160


def output(file: TextIO | None = None) -> Console:
    """The console for results, on standard output unless a file is given."""
    console = Console(highlight=False, file=file)
    return console if console.is_terminal else Console(highlight=False, file=file, width=_FILE_WIDTH)


def begin(threads: int | None) -> Console:
    """The console for measurements, with the machine in its first line; sets the number of threads."""
    set_threads(threads)
    console = output()
    console.print(machine_line())
    return console


def conclude(*parts: RenderableType, soft_wrap: bool = False) -> None:
    """Prints after the output of a script that has ended, on the standard error that it began with.

    Nothing is printed where that has been closed. The script's own streams are left to Python, which flushes
    them once more and says what fails; so nothing of ours must remain in them.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    errors = sys.__stderr__
    if errors is None or errors.closed:
        return
    console = output(errors)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=soft_wrap)
    with (
        contextlib.suppress(OSError),
        open(errors.fileno(), "w", encoding=errors.encoding, errors=errors.errors, closefd=False) as file,
    ):
        file.write(captured.get())


@contextmanager
def progress(total: int | None = None, what: str = "", still: bool = False) -> Iterator["Bar"]:
    """A bar that is there while the block runs.

    Args:
        total: Steps to do; None means that their number is not known.
        what: What is being done.
        still: Whether it is drawn only where it changes. Otherwise it is drawn ten times a second, which
            takes time from other processes that are measured.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=not still,
    ) as display:
        yield Bar(display, total, what, still)


class Bar:
    """One bar."""

    def __init__(self, display: Progress, total: int | None, what: str, still: bool) -> None:
        self._display, self._still = display, still
        self._task = display.add_task(what, total=total)

    def describe(self, what: str) -> None:
        """Says what is being done."""
        self._display.update(self._task, description=what, refresh=self._still)

    def advance(self, what: str | None = None) -> None:
        """One step is done; says what is being done now, unless that stays the same."""
        self._display.update(self._task, description=what, advance=1, refresh=self._still)

    def share(self, what: str, done: float) -> None:
        """Says what is being done, and how much of it is done, 0 to 1."""
        self._display.update(
            self._task, description=what, total=100, completed=round(100 * done), refresh=self._still
        )
