"""The function that long computations tell how far they are."""

from collections.abc import Callable

# Called with the current step and the share that is done, 0 to 1.
Progress = Callable[[str, float], None]


def silent(_what: str, _done: float) -> None:
    """Tells nobody."""
