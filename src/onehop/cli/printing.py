"""Settings of a verb's output, which its options decide while it runs."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

# Options of files that get results.
_FILES = ("json", "plot", "parts_plot", "trace", "export", "commands")


@dataclass(frozen=True, slots=True)
class Printing:
    """The settings of a verb's output.

    Attributes:
        quiet: Whether neither tables nor progress are printed.
        on_errors: Whether tables go to standard error, because standard output gets the JSON alone.
        lasts: Whether the work goes on after standard output was closed, because files get results too.
    """

    quiet: bool = False
    on_errors: bool = False
    lasts: bool = False


_USUAL = Printing()
_NOW = ContextVar("printing", default=_USUAL)


def now() -> Printing:
    """Return what the verb that runs prints."""
    return _NOW.get()


@contextlib.contextmanager
def of(options: object) -> Iterator[None]:
    """Print what a verb's options say inside the block."""
    files = [path for name in _FILES if (path := getattr(options, name, None)) is not None]
    on_errors = str(getattr(options, "json", None)) == "-"
    token = _NOW.set(Printing(getattr(options, "quiet", False), on_errors, bool(files)))
    try:
        yield
    finally:
        _NOW.reset(token)
