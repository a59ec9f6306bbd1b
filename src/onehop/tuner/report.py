"""What the caller of a tuning is told of its progress."""

from collections.abc import Callable

from onehop.tuner.search import Budget

# Called with what is being done, and the share of the whole that is done, from 0 to 1.
Progress = Callable[[str, float], None]


class Report:
    """What the caller is told of the progress."""

    def __init__(self, progress: Progress | None, budget: Budget) -> None:
        self._progress = progress
        self._budget = budget
        self._whole = max(budget.left(), 1e-9)
        self.what = ""

    def __call__(self, what: str, done: float) -> None:
        """Says so."""
        if self._progress is not None:
            self._progress(what, done)

    def tick(self) -> None:
        """Another measurement is done."""
        self(self.what, min(1.0, max(0.0, 1.0 - self._budget.left() / self._whole)))
