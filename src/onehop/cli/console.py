"""Consoles: results go to standard output; progress, and reports on scripts, go to standard error."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import torch
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from onehop.bench.stamp import commit, machine_line
from onehop.cli import printing

# The width if the output is not a terminal, for example a file, so that tables are not cut.
_FILE_WIDTH = 160


class _Results(Console):
    """A console that falls silent, if files get the results too, when nothing reads what it prints."""

    def on_broken_pipe(self) -> None:
        """End the process, or stay silent from now on."""
        if not printing.now().lasts:
            super().on_broken_pipe()
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # Python flushes the stream once more when it ends


def output(file: TextIO | None = None) -> Console:
    """Return the console for results, on standard output unless a file is given.

    Results go to standard error if the verb's JSON goes to standard output, and nowhere with ``--quiet``.
    """
    now = printing.now()
    if file is None and now.on_errors:
        file = sys.stderr
    console = _Results(highlight=False, file=file, quiet=now.quiet)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def set_threads(threads: int | None) -> None:
    """Set torch's number of threads, which onehop uses too; None leaves it."""
    if threads is not None:
        torch.set_num_threads(threads)


def begin(threads: int | None) -> Console:
    """Return the console for measurements, after printing the machine; also set the number of threads."""
    set_threads(threads)
    commit()  # results name the commit that the run began with
    console = output()
    console.print(machine_line())
    return console


def conclude(*parts: RenderableType, soft_wrap: bool = False) -> None:
    """Print to the original standard error, after the output of a script that has ended.

    Nothing is printed if the script has closed standard error. The script's own streams are left to Python,
    which flushes them again and reports failures; so none of our output may remain in them.
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
    """Show a progress bar on a terminal while the block runs, unless the verb is quiet.

    Args:
        total: Number of steps; None means unknown.
        what: The current step, as text.
        still: Whether the bar is drawn only when it changes. Otherwise it is drawn ten times a second, which
            takes time from other processes that are being measured.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        auto_refresh=not still,
        disable=printing.now().quiet or not console.is_terminal,
    ) as display:
        yield Bar(display, total, what, still)


class Bar:
    """One progress bar."""

    def __init__(self, display: Progress, total: int | None, what: str, still: bool) -> None:
        self._display, self._still = display, still
        self._task = display.add_task(what, total=total)

    def describe(self, what: str) -> None:
        """Show what is being done."""
        self._display.update(self._task, description=what, refresh=self._still)

    def advance(self, what: str | None = None) -> None:
        """Advance by one step; ``what`` shows what is being done now, None leaves the text."""
        self._display.update(self._task, description=what, advance=1, refresh=self._still)

    def share(self, what: str, done: float) -> None:
        """Show what is being done, and the share that is done, 0 to 1."""
        self._display.update(
            self._task, description=what, total=100, completed=round(100 * done), refresh=self._still
        )
