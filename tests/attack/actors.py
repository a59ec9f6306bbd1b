"""Threads that take one step at a time, so that a random order of their steps is the same in every run."""

import queue
import threading
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]
_PATIENCE_S = 120


class Actor:
    """A thread that takes the steps that it is told, each to its end, and may be inside of several calls."""

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self._steps: queue.Queue[Step | None] = queue.Queue()
        self._answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, step: Step) -> Any:
        """Has the thread take a step, and returns or raises what it did."""
        return self._told(step)

    def enter(self, around: Callable[[Step], Any], what: Any = None) -> None:
        """Has the thread call ``around`` with a function that does not return before :meth:`leave`."""
        self._told(lambda: around(self._stay))
        self.inside.append(what)

    def leave(self) -> Any:
        """Ends the innermost call of :meth:`enter`, and returns what it did."""
        self.inside.pop()
        return self._told(None)

    def end(self) -> None:
        """Ends the thread, which is in no call."""
        self._steps.put(None)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()

    def _told(self, step: Step | None) -> Any:
        self._steps.put(step)
        result, error = self._answers.get(timeout=_PATIENCE_S)
        if error is not None:
            raise error
        return result

    def _stay(self) -> None:
        self._answers.put((None, None))
        self._run()

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            try:
                self._answers.put((step(), None))
            except BaseException as error:  # the test raises it
                self._answers.put((None, error))
