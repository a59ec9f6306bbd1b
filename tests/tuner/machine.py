"""A machine on which plans take what a formula says, on a clock that nothing else moves."""

from collections.abc import Callable
from typing import Any

from onehop.plans import CpuPlan
from onehop.tuner.search import Budget, Search

DEFAULT = CpuPlan()


def quiet(number: int, plan: CpuPlan) -> float:
    return 1.0


class Machine:
    """Plans take what ``cost`` says; what else runs lengthens some measurements, by number and plan."""

    def __init__(
        self, cost: Callable[[CpuPlan], float], lengthened: Callable[[int, CpuPlan], float] = quiet
    ) -> None:
        self.cost, self.lengthened, self.now = cost, lengthened, 0.0
        self.calls: list[CpuPlan] = []

    def measure(self, plan: CpuPlan) -> float:
        self.calls.append(plan)
        seconds = self.cost(plan)
        # What else runs takes nothing of the budget, which is harder: the search is over no sooner by that.
        self.now += seconds
        return seconds * self.lengthened(len(self.calls) - 1, plan)

    def search(
        self,
        axes: dict[str, tuple[Any, ...]],
        predict: Callable[[CpuPlan], float],
        seconds: float = 1e9,
        watch: Callable[[], None] = lambda: None,
    ) -> Search[CpuPlan]:
        budget = Budget(seconds, lambda: self.now)
        return Search(DEFAULT, axes, self.measure, predict, budget, watch)
