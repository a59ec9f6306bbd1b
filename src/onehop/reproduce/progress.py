"""The function that long computations tell how far they are."""

from collections.abc import Callable

# Called with the current step and the share that is done, 0 to 1.
Progress = Callable[[str, float], None]


def silent(_what: str, _done: float) -> None:
    """Tells nobody."""


def part(progress: Progress, begin: float, end: float) -> Progress:
    """The progress of a part of a computation.

    Args:
        progress: The whole's.
        begin: Share of the whole at which the part begins.
        end: Share at which it ends.
    """

    def told(what: str, done: float) -> None:
        progress(what, begin + (end - begin) * done)

    return told
