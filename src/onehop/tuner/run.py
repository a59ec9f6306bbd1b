"""One search: one direction of one operation at one width, on any machine."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import torch

from onehop.graph import Graph
from onehop.plans.cases import GpuCase, PlanCase
from onehop.plans.entry import P, Tuned
from onehop.tuner.candidates import Axes
from onehop.tuner.operations import Operation
from onehop.tuner.proof import compared
from onehop.tuner.search import Budget, Search, Steps

# Orders are computed, the most promising first, while this takes at most this share of the time.
_ORDERS_SHARE = 0.25
_ORDER_S_PER_EDGE = 1.5e-7

Progress = Callable[[str, float], None]
"""Called with a description of the current step, and the completed share of the whole, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Task:
    """A direction of an operation at one width, to be tuned.

    Attributes:
        graph: The graph.
        case: The case of the plan to find.
        operation: The direction.
        dtype: Dtype of the features.
    """

    graph: Graph
    case: Any
    operation: Operation
    dtype: torch.dtype


class Tactics(Generic[P]):
    """The plans of one task on one machine: which plans are tried, and how long each takes.

    Args:
        task: The task.
        default: The plan to beat.
        axes: Values to try, by field.
        free: The fields that may differ from the default plan's.

    Attributes:
        search_share: Share of the time for the search; the remaining time is for :meth:`complete`.
        payback_runs: Calls within which an order must pay off; None means that its time does not count.
    """

    search_share = 1.0
    payback_runs: int | None = None

    def __init__(self, task: Task, default: P, axes: Axes, free: Sequence[str]) -> None:
        self.task, self.default = task, default
        self.axes = {name: values for name, values in axes.items() if name in free}

    def predict(self, plan: P) -> float:
        """Predict the seconds of a call: 0 without a model, infinite for a plan that cannot run."""
        raise NotImplementedError

    def seconds(self, call: Callable[[P], Any], plan: P) -> float:
        """Measure a call; infinite for a plan that cannot run."""
        raise NotImplementedError

    def make_order(self, name: str) -> None:
        """Compute an order, and the arrays of rows in that order."""
        raise NotImplementedError

    def proposals(self) -> list[P]:
        """Return plans with which the search starts, in addition to the default plan."""
        return []

    def complete(self, search: Search[P], call: Callable[[P], Any], budget: Budget) -> Steps[None]:
        """Run the steps that follow the search."""
        yield from ()

    def facts(self, best: P) -> dict[str, Any]:
        """Return the parts of an entry that only this machine knows, and free the data of rejected plans."""
        raise NotImplementedError


class ProgressReport:
    """Progress reports to the caller."""

    def __init__(self, progress: Progress | None, budget: Budget) -> None:
        self._progress = progress
        self._budget = budget
        self._whole = max(budget.left(), 1e-9)
        self.what = ""

    def __call__(self, what: str, done: float) -> None:
        """Report a step."""
        if self._progress is not None:
            self._progress(what, done)

    def tick(self) -> None:
        """Report that another measurement was made."""
        self(self.what, min(1.0, max(0.0, 1.0 - self._budget.left() / self._whole)))


class Run(Generic[P]):
    """The tuning of a task.

    Args:
        task: The task.
        tactics: The task's plans.
        budget: The time available.
        tick: Called after every measurement.
        before: The entry from which an interrupted search continues; None means from the start.
    """

    def __init__(
        self,
        task: Task,
        tactics: Tactics[P],
        budget: Budget,
        tick: Callable[[], None],
        before: Tuned[P] | None,
    ) -> None:
        self.task, self.tactics, self.budget, self.tick, self.before = task, tactics, budget, tick, before
        self.order_seconds: dict[str, float] = {}
        self.search: Search[P] | None = None

    def steps(self) -> Steps[None]:
        """Measure within the budget; yield after every measurement, and after every other long step."""
        task, tactics = self.task, self.tactics
        if self.budget.left() < tactics.predict(tactics.default):
            self.search = self._new_search(lambda _: math.inf)
            self.search.exhausted = True
            return
        call = task.operation.make(task.graph, task.case.width, task.dtype)
        yield
        self.order_seconds = yield from make_orders(
            task.graph, tactics.axes, tactics.make_order, self.budget, self.tick
        )
        self.search = self._new_search(lambda plan: tactics.seconds(call, plan) + self._charge(plan))
        yield from self.search.run([*tactics.proposals(), *self._earlier()])
        yield from tactics.complete(self.search, call, self.budget)

    def _new_search(self, measure: Callable[[P], float]) -> Search[P]:
        tactics, budget = self.tactics, self.budget
        share = budget if tactics.search_share == 1 else budget.part(tactics.search_share)
        return Search(tactics.default, tactics.axes, measure, tactics.predict, share, self.tick)

    def _earlier(self) -> list[P]:
        """Return the plan from which an interrupted search continues, with its order if that is ready."""
        if self.before is None:
            return []
        plan = self.before.plan
        return [plan if plan.ordering in self.order_seconds else dataclasses.replace(plan, ordering="none")]

    def _charge(self, plan: P) -> float:
        """Return a call's share of the time to compute the plan's order."""
        runs = self.tactics.payback_runs
        return 0.0 if runs is None else self.order_seconds.get(plan.ordering, 0.0) / runs

    def entry(self) -> Tuned[P] | None:
        """Return the best result so far; None before the search has begun."""
        search = self.search
        if search is None:
            return None
        # Without the charge for the order; a plan that cannot run took no time.
        settled = {
            plan: [seconds - self._charge(plan) for seconds in times]
            for plan, times in search.settled.items()
            if math.isfinite(times[0])
        }
        medians = {plan: statistics.median(times) for plan, times in settled.items()}
        gain = None
        if search.best != search.default:
            gain = compared(settled.get(search.default, ()), settled.get(search.best, ()))
        case: PlanCase | GpuCase = self.task.case
        return Tuned(
            case=case,
            plan=search.best,
            measured_s=medians.get(search.best),
            default_s=medians.get(search.default),
            ordering_s=self.order_seconds.get(search.best.ordering, 0.0),
            tried=len(search.times),
            finished=bool(search.settled) and not search.exhausted,
            quartiles=None if gain is None else (gain.low, gain.median, gain.high),
            pairs=0 if gain is None else gain.pairs,
            **self.tactics.facts(search.best),
        )


def make_orders(
    graph: Graph, axes: Axes, make: Callable[[str], object], budget: Budget, tick: Callable[[], None]
) -> Steps[dict[str, float]]:
    """Compute the orders for which there is time, and remove the others from the axes.

    Args:
        graph: The graph.
        axes: Values to try, by field; changed in place.
        make: Computes the order of a name, and the arrays of rows in that order.
        budget: The time available.
        tick: Called after each order.

    Returns:
        The seconds that each order takes. Orders that already existed are included, because another process
        must compute them again.
    """
    seconds: dict[str, float] = {}
    if "ordering" not in axes:
        return seconds
    end = (1 - _ORDERS_SHARE) * budget.left()
    for name in axes["ordering"][1:]:
        assert isinstance(name, str)
        if budget.left() - _ORDER_S_PER_EDGE * graph.num_edges < end:
            break
        order = graph.orders.get(name)
        begin = time.perf_counter()
        make(name)
        seconds[name] = time.perf_counter() - begin + (order.seconds if order else 0.0)
        tick()
        yield
    axes["ordering"] = ("none", *seconds)
    if not seconds:
        del axes["ordering"]
    return seconds
