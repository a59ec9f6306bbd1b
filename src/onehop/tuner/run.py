"""One search: one direction of one operation at one width."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from onehop import native
from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.plans import CpuPlan
from onehop.plans.tuned import PlanCase, Tuned
from onehop.tuner import baseline, candidates
from onehop.tuner.cost_model import CostModel
from onehop.tuner.generation import Generation
from onehop.tuner.operations import Operation
from onehop.tuner.orders import make_orders
from onehop.tuner.report import ProgressReport
from onehop.tuner.search import Budget, Search, Steps
from onehop.tuner.speeds import speeds

# Calls shorter than this are repeated within one measurement.
_SHORT_S = 2e-3
# Longer calls are many times as long as the wait for a processor that is busy with another program.
_LONG_S = 0.1
# Number of plans that the model may propose at the start.
_PROPOSED = 3
_BASELINE_ROUNDS = 3
# Share of the time for the search where kernels are generated afterwards.
_SEARCH_SHARE = 0.5
# A predicted gain must be this large to be trusted.
_CONVINCING = 0.9


class CpuRun:
    """Tuning of one direction at one width."""

    def __init__(
        self,
        graph: Graph,
        case: PlanCase,
        operation: Operation,
        dtype: torch.dtype,
        lossy: bool,
        free: Sequence[str],
        budget: Budget,
        report: ProgressReport,
        before: Tuned[CpuPlan] | None,
        codegen: bool = False,
    ) -> None:
        self.graph, self.case, self.operation, self.dtype = graph, case, operation, dtype
        self.budget, self.report, self.before = budget, report, before
        self.order_seconds: dict[str, float] = {}
        self.baseline_s: float | None = None
        self.search: Search[CpuPlan] | None = None
        self.codegen = codegen
        self.generation_outcome, self.generation_raced = "", False
        self.had = set(graph.ordered)
        vector_bytes = native.extension.vector_bytes()
        everything = candidates.axes(graph, operation, case.width, dtype, case.threads, vector_bytes, lossy)
        self.axes = {name: values for name, values in everything.items() if name in free}
        self.model = CostModel(
            graph,
            operation.transposed,
            case.width,
            dtype.itemsize,
            speeds(case.threads, case.isa),
            vector_bytes,
            operation.reads_two,
            {},
        )

    def search_plans(self, op: str, reduce: str, compared: bool = True) -> Steps[None]:
        """Measures within the budget; yields after every measurement, and after every other long step."""
        default = candidates.start(self.graph, self.operation, self.case.width, self.dtype)
        if self.budget.left() < self.model.predict(default):
            self.search = self._new_search(default, lambda _: math.inf)
            self.search.exhausted = True
            if self.codegen:
                self.generation_outcome = "no kernel was generated: there was no time left"
            return
        call = self.operation.make(self.graph, self.case.width, self.dtype)
        yield
        yield from self.make_orders()
        self.search = self._new_search(default, lambda plan: _timed(call, plan))
        earlier = [dataclasses.replace(self.before.plan, generated="")] if self.before else []
        yield from self.search.run([*self.proposals(default), *earlier])
        if compared:
            yield from self._time_baseline(op, reduce)
        if self.codegen:
            self.search.budget = self.budget
            generation = Generation(self.case, self.search, call, self.dtype)
            self.generation_outcome, self.generation_raced = generation.run()

    def _new_search(self, default: CpuPlan, measure: Callable[[CpuPlan], float]) -> Search[CpuPlan]:
        share = self.budget.part(_SEARCH_SHARE) if self.codegen else self.budget
        return Search(default, self.axes, measure, self.model.predict, share, self.report.tick)

    def make_orders(self) -> Steps[None]:
        """Makes the orders that the time allows, and removes the others from the axes."""
        graph, transposed = self.graph, self.operation.transposed
        self.order_seconds = yield from make_orders(
            graph,
            self.axes,
            lambda name: ordered_csr(graph, name, transposed),
            self.budget,
            self.report.tick,
        )

    def proposals(self, default: CpuPlan) -> list[CpuPlan]:
        """The model's best plans: field by field from the default, and the intermediate steps.

        A field departs from the default where the predicted gain exceeds the model's error.
        """
        best, steps = default, [default]
        for name, values in self.axes.items():
            options = [Search.replaced(best, name, value) for value in values]
            promising = min(options, key=self.model.predict)
            if self.model.predict(promising) < _CONVINCING * self.model.predict(best):
                best = promising
            steps.append(best)
        return list(dict.fromkeys(reversed(steps)))[:_PROPOSED]

    def _time_baseline(self, op: str, reduce: str) -> Steps[None]:
        call = baseline.torch_csr(
            self.graph, op, reduce, self.operation.transposed, self.case.width, self.dtype
        )
        times: list[float] = []
        while call is not None and len(times) < _BASELINE_ROUNDS:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
            yield
            if self.budget.left() < times[-1]:
                break
        self.baseline_s = statistics.median(times) if len(times) == _BASELINE_ROUNDS else None

    def found(self) -> Tuned[CpuPlan] | None:
        """The best result so far; None before the search began."""
        search = self.search
        if search is None:
            return None
        settled = {plan: statistics.median(times) for plan, times in search.settled.items()}
        gain = search.gain()
        finished = bool(settled) and not search.exhausted
        ordering = search.best.ordering
        self._drop_orders(ordering)
        self._drop_columns(search.best)
        return Tuned(
            case=self.case,
            plan=search.best,
            predicted_s=self.model.predict(search.best),
            measured_s=settled.get(search.best),
            default_s=settled.get(search.default),
            baseline_s=self.baseline_s,
            ordering_s=self.order_seconds.get(ordering, 0.0),
            tried=len(search.times),
            finished=finished,
            codegen=self.generation_outcome,
            raced=self.generation_raced,
            quartiles=None if gain is None else (gain.low, gain.median, gain.high),
            pairs=0 if gain is None else gain.pairs,
        )

    def _drop_orders(self, chosen: str) -> None:
        """Frees the arrays of orders that were rejected."""
        for key in [key for key in self.graph.ordered if key not in self.had and key[0] != chosen]:
            del self.graph.ordered[key]

    def _drop_columns(self, chosen: CpuPlan) -> None:
        """Frees the copies of columns that were rejected; they are rebuilt when needed."""
        transposed = self.operation.transposed
        for ordering in ("none", *(name for name, turned in self.graph.ordered if turned == transposed)):
            csr = ordered_csr(self.graph, ordering, transposed)
            for index in self.axes.get("index", ()):
                if index == "int16" and (ordering, index) != (chosen.ordering, chosen.index):
                    csr.free_narrow_col()


def _timed(call: Callable[[CpuPlan], object], plan: CpuPlan) -> float:
    """Seconds of one call; of short calls the lower median of as many as fit into one measurement.

    The first call may have to wake threads on a processor that is busy with another program. It counts only
    if calls are so long that this does not matter.
    """
    once = _seconds(call, plan)
    if once >= _LONG_S:
        return once
    times: list[float] = []
    total = 0.0
    while total < _SHORT_S:
        times.append(_seconds(call, plan))
        total += times[-1]
    return statistics.median_low(times) if len(times) > 1 else min(once, *times)


def _seconds(call: Callable[[CpuPlan], object], plan: CpuPlan) -> float:
    begin = time.perf_counter()
    call(plan)
    return time.perf_counter() - begin
