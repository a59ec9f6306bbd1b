"""One search on a GPU: one direction of one operation at one width."""

import dataclasses
import logging
import math
import statistics
from collections.abc import Callable, Sequence

import torch

from onehop.graph import Graph
from onehop.graph.reorder import row_order
from onehop.plans import TritonPlan
from onehop.plans.cases import GpuCase, graph_key
from onehop.plans.entry import Tuned
from onehop.tuner.gpu import candidates
from onehop.tuner.gpu.timing import seconds_of
from onehop.tuner.operations import Operation
from onehop.tuner.orders import make_orders
from onehop.tuner.proof import compared
from onehop.tuner.report import ProgressReport
from onehop.tuner.search import Budget, Search, Steps

LOGGER = logging.getLogger("onehop")

# An order must pay for itself within this many runs: some hundred epochs of a model of a few layers.
PAYBACK_RUNS = 1000


class GpuRun:
    """Tuning of one direction at one width.

    There is no cost model: the time of a plan is known once it ran. Each run of a plan with an order is
    charged with its share of the time to make the order, so that an order wins only if it pays off in time.
    """

    def __init__(
        self,
        graph: Graph,
        case: GpuCase,
        operation: Operation,
        dtype: torch.dtype,
        device: torch.device,
        free: Sequence[str],
        budget: Budget,
        report: ProgressReport,
        before: Tuned[TritonPlan] | None,
    ) -> None:
        self.graph, self.case, self.operation, self.dtype, self.device = graph, case, operation, dtype, device
        self.budget, self.report, self.before = budget, report, before
        self.order_seconds: dict[str, float] = {}
        self.search: Search[TritonPlan] | None = None
        everything = candidates.axes(
            graph, operation, case.width, case.heads, dtype, candidates.cache_bytes(device)
        )
        self.axes = {name: values for name, values in everything.items() if name in free}
        self._had, self._had_orders = set(graph.derived), set(graph.orders)
        self._ready: dict[TritonPlan, bool] = {}

    def search_plans(self) -> Steps[None]:
        """Measures within the budget; yields after every measurement, and after every other long step."""
        graph, case = self.graph, self.case
        default = candidates.start(graph, self.operation, case.width, case.heads, self.dtype)
        call = self.operation.make(graph, case.width, self.dtype)
        yield
        self.order_seconds = yield from make_orders(
            graph,
            self.axes,
            lambda name: row_order(graph, name, self.operation.transposed),
            self.budget,
            self.report.tick,
        )
        self.search = Search(
            default,
            self.axes,
            lambda plan: self._measure(call, plan),
            self._expected,
            self.budget,
            self.report.tick,
        )
        yield from self.search.run(self._earlier())

    def _earlier(self) -> list[TritonPlan]:
        """The plan at which an interrupted search continues; with its order only if there was time for it."""
        if self.before is None:
            return []
        plan = self.before.plan
        known = plan.ordering in self.order_seconds
        return [plan if known else dataclasses.replace(plan, ordering="none")]

    def _expected(self, plan: TritonPlan) -> float:
        """Predicts nothing before a plan ran, except that some plans do not fit into registers."""
        return 0.0 if candidates.holds(plan, self.case.width) else math.inf

    def _measure(self, call: Callable[[TritonPlan], object], plan: TritonPlan) -> float:
        if plan not in self._ready:
            self._ready[plan] = self._runs(call, plan)
        if not self._ready[plan]:
            return math.inf
        return seconds_of(call, plan, self.device) + self._charge(plan)

    def _runs(self, call: Callable[[TritonPlan], object], plan: TritonPlan) -> bool:
        """Compiles the plan's kernels; returns whether the GPU has enough memory for it."""
        from triton.runtime.errors import OutOfResources

        try:
            call(plan)
        except OutOfResources as error:
            LOGGER.info("%s is not tried: %s", plan, error)
            return False
        return True

    def _charge(self, plan: TritonPlan) -> float:
        return self.order_seconds.get(plan.ordering, 0.0) / PAYBACK_RUNS

    def found(self) -> Tuned[TritonPlan] | None:
        """The best result so far; None before the search began."""
        search = self.search
        if search is None:
            return None
        # Without the charge for its order; a plan that cannot run has taken no time.
        settled = {
            plan: [seconds - self._charge(plan) for seconds in times]
            for plan, times in search.settled.items()
            if math.isfinite(times[0])
        }
        medians = {plan: statistics.median(times) for plan, times in settled.items()}
        gain = None
        if search.best != search.default:
            gain = compared(settled.get(search.default, ()), settled.get(search.best, ()))
        self._drop(search.best.ordering)
        return Tuned(
            case=self.case,
            plan=search.best,
            predicted_s=None,
            measured_s=medians.get(search.best),
            default_s=medians.get(search.default),
            ordering_s=self.order_seconds.get(search.best.ordering, 0.0),
            tried=len(search.times),
            finished=bool(search.settled) and not search.exhausted,
            quartiles=None if gain is None else (gain.low, gain.median, gain.high),
            pairs=0 if gain is None else gain.pairs,
            figures=graph_key(self.graph),
        )

    def _drop(self, ordering: str) -> None:
        """Frees the data that rejected plans have left with the graph; it is rebuilt when needed."""
        with self.graph.lock:
            for key in set(self.graph.derived) - self._had:
                del self.graph.derived[key]
            for name in set(self.graph.orders) - self._had_orders - {ordering}:
                del self.graph.orders[name]
