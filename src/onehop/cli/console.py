"""Consoles: results go to standard output, progress to standard error."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# The width where output is no terminal, as in a file: tables are not to be cut there.
_FILE_WIDTH = 160


def output() -> Console:
    """The console for results."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_FILE_WIDTH)


@contextmanager
def progress(total: int | None = None, what: str = "") -> Iterator["Bar"]:
    """A bar that is there while the block runs."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as display:
        yield Bar(display, total, what)


class Bar:
    """One bar."""

    def __init__(self, display: Progress, total: int | None, what: str) -> None:
        self._display = display
        self._task = display.add_task(what, total=total)

    def describe(self, what: str) -> None:
        """Says what is being done."""
        self._display.update(self._task, description=what)

    def advance(self) -> None:
        """One step is done."""
        self._display.advance(self._task)

    def share(self, what: str, done: float) -> None:
        """Says what is being done, and how much of it is done, 0 to 1."""
        self._display.update(self._task, description=what, total=100, completed=round(100 * done))
