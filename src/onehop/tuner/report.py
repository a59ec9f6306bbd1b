"""Progress reports of tuning to its caller."""

from collections.abc import Callable

from onehop.tuner.search import Budget

# Called with a description of the current step, and the completed share of the whole, from 0 to 1.
Progress = Callable[[str, float], None]


class ProgressReport:
    """Progress reports to the caller."""

    def __init__(self, progress: Progress | None, budget: Budget) -> None:
        self._progress = progress
        self._budget = budget
        self._whole = max(budget.left(), 1e-9)
        self.what = ""

    def __call__(self, what: str, done: float) -> None:
        """Reports a step."""
        if self._progress is not None:
            self._progress(what, done)

    def tick(self) -> None:
        """Counts another measurement."""
        self(self.what, min(1.0, max(0.0, 1.0 - self._budget.left() / self._whole)))
