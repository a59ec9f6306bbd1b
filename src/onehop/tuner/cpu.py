"""Tuning of the C++ kernels on this processor."""

import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.backends.cpu import CpuBackend
from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.kernels.cpu import generated
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.cases import PlanCase, case_of
from onehop.plans.entry import Tuned
from onehop.tuner import candidates
from onehop.tuner.calls import duration
from onehop.tuner.codegen.generation import Generation
from onehop.tuner.cost_model import CostModel
from onehop.tuner.operations import FIELDS, Operation, operations
from onehop.tuner.run import Tactics, Task
from onehop.tuner.search import Budget, Search, Steps
from onehop.tuner.speeds import speeds

_REDUCE = {"max": "amax", "min": "amin"}


def torch_csr(
    graph: Graph, op: str, reduce: str, transposed: bool, width: int, dtype: torch.dtype
) -> Callable[[], Tensor] | None:
    """Return a call of ``torch.sparse.mm`` with the same result; None if torch has no such operation.

    The transposed matrix is also built before the call; torch's own backward pass builds it in every call.
    """
    if op != "aggregate" or dtype not in (torch.float32, torch.float64):
        return None
    if reduce in _REDUCE and transposed:
        return None  # torch's gradient of extrema does not use sparse.mm
    csr = graph.transposed_csr if transposed else graph.csr
    values = torch.ones(csr.edges, dtype=dtype, device="cpu")
    if reduce == "mean":
        inverse = graph.inverse_in_degrees(dtype)
        values = inverse[csr.col] if transposed else inverse.repeat_interleave(csr.rowptr.diff())
    small = max(csr.edges, csr.rows, csr.cols) < 2**31  # MKL is fastest with 32 bits
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        matrix = torch.sparse_csr_tensor(
            csr.rowptr.int() if small else csr.rowptr,
            csr.col if small else csr.col.long(),
            values,
            (csr.rows, csr.cols),
            check_invariants=False,
            device=values.device,
        )
    x = torch.randn(csr.cols, width, generator=torch.Generator().manual_seed(0), device="cpu").to(dtype)
    if reduce in _REDUCE:
        return lambda: torch.sparse.mm(matrix, x, _REDUCE[reduce])
    return lambda: torch.sparse.mm(matrix, x)


# Default seconds per width.
BUDGET_S = 10.0

# Calls shorter than this are repeated within one measurement.
_SHORT_S = 2e-3
# Calls this long take many times as long as the wait for a processor that another program is using.
_LONG_S = 0.1
# Maximum number of plans that the model proposes at the start.
_PROPOSED = 3
_BASELINE_ROUNDS = 3
# Share of the time for the search if kernels are generated afterwards.
_SEARCH_SHARE = 0.5
# The model's predicted time must be below this share of the current one to be trusted.
_CONVINCING = 0.9


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """The C++ kernels on this processor, as a target of tuning.

    Attributes:
        op: The operator to tune.
        reduce: The operator's reduction, for "aggregate".
        backward: Whether the gradient is tuned too.
        lossy: Whether plans may round features.
        codegen: Whether kernels are generated.
        compared: Whether torch's own operation is timed too.
    """

    op: str
    reduce: str
    backward: bool
    lossy: bool = False
    codegen: bool = False
    compared: bool = True
    fields: tuple[str, ...] = FIELDS

    @property
    def budget_s(self) -> float:
        """Default seconds for a width: twice as many with generated kernels."""
        return BUDGET_S * (2 if self.codegen else 1)

    def machine(self) -> dict[str, Any]:
        """The processor's properties."""
        return store.machine()

    def refuse(self, width: int, dtype: torch.dtype) -> str | None:
        """Return why a width or dtype cannot be tuned, or None if both can; the backend checks the dtype."""
        reason = CpuBackend().refuse(torch.device("cpu"), dtype)
        return None if reason is None else f"dtype: the CPU backend {reason}."

    def operations(self) -> tuple[Operation, ...]:
        """Return the operation's directions, forward first."""
        return operations(self.op, self.reduce, self.backward)

    def case(self, graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> PlanCase:
        """Return the case of a plan."""
        return case_of(graph, operation.name, operation.transposed, width, dtype)

    def known(self, case: PlanCase) -> Tuned[CpuPlan] | None:
        """Return the entry for exactly this case, or None."""
        return tuned.known(case)

    def is_due(self, before: Tuned[CpuPlan]) -> bool:
        """Return whether a search was interrupted, or may find another plan: with fewer bits, or a kernel."""
        if self.lossy or not before.finished:
            return True
        lost = before.plan.generated and generated.why_not(before.plan.generated) is not None
        return self.codegen and (not before.raced or bool(lost))

    def tactics(self, task: Task, free: Sequence[str]) -> "CpuTactics":
        """Return the tactics for a task."""
        return CpuTactics(self, task, free)

    def install(self, entry: Tuned[CpuPlan], keep: bool) -> None:
        """Install a plan; plans that round features are installed for this process only."""
        tuned.install([entry], keep and entry.plan.storage == "same")


class CpuTactics(Tactics[CpuPlan]):
    """The plans of one task: the model predicts their times, then they are measured."""

    def __init__(self, target: CpuTarget, task: Task, free: Sequence[str]) -> None:
        graph, case, operation = task.graph, task.case, task.operation
        vector_bytes = native.extension.vector_bytes()
        axes = candidates.axes(
            graph, operation, case.width, task.dtype, case.threads, vector_bytes, target.lossy
        )
        super().__init__(task, candidates.start(graph, operation, case.width, task.dtype), axes, free)
        self._target = target
        self._had = set(graph.ordered)
        self.search_share = _SEARCH_SHARE if target.codegen else 1.0
        self.model = CostModel(
            graph,
            operation.transposed,
            case.width,
            task.dtype.itemsize,
            speeds(case.threads, case.isa),
            vector_bytes,
            operation.reads_two,
        )
        self._baseline_s: float | None = None
        self._generation = (
            "no kernel was generated: there was no time left" if target.codegen else "",
            False,
        )

    def predict(self, plan: CpuPlan) -> float:
        """Predict the seconds of a call."""
        return self.model.predict(plan)

    def seconds(self, call: Callable[[CpuPlan], Any], plan: CpuPlan) -> float:
        """Measure a call."""
        return _timed(call, plan)

    def make_order(self, name: str) -> None:
        """Compute an order, and the arrays of rows in that order."""
        ordered_csr(self.task.graph, name, self.task.operation.transposed)

    def proposals(self) -> list[CpuPlan]:
        """Return the model's best plans, found field by field from the default, and the intermediate steps.

        A field departs from the default if the predicted gain exceeds the model's error.
        """
        best, steps = self.default, [self.default]
        for name, values in self.axes.items():
            options = [Search.replaced(best, name, value) for value in values]
            promising = min(options, key=self.predict)
            if self.predict(promising) < _CONVINCING * self.predict(best):
                best = promising
            steps.append(best)
        return list(dict.fromkeys(reversed(steps)))[:_PROPOSED]

    def complete(
        self, search: Search[CpuPlan], call: Callable[[CpuPlan], Any], budget: Budget
    ) -> Steps[None]:
        """Time torch's own operation, and race generated kernels."""
        if self._target.compared:
            yield from self._time_baseline(budget)
        if self._target.codegen:
            search.budget = budget
            self._generation = Generation(self.task.case, search, call, self.task.dtype).run()

    def _time_baseline(self, budget: Budget) -> Steps[None]:
        task, target = self.task, self._target
        call = torch_csr(
            task.graph, target.op, target.reduce, task.operation.transposed, task.case.width, task.dtype
        )
        times: list[float] = []
        while call is not None and len(times) < _BASELINE_ROUNDS:
            times.append(duration(call))
            yield
            if budget.left() < times[-1]:
                break
        self._baseline_s = statistics.median(times) if len(times) == _BASELINE_ROUNDS else None

    def facts(self, best: CpuPlan) -> dict[str, Any]:
        """Return prediction, torch's time and outcome of generation; free what rejected plans left."""
        self._drop_orders(best.ordering)
        outcome, raced = self._generation
        return {
            "predicted_s": self.predict(best),
            "baseline_s": self._baseline_s,
            "codegen": outcome,
            "raced": raced,
        }

    def _drop_orders(self, chosen: str) -> None:
        """Free the arrays of orders that were rejected."""
        ordered = self.task.graph.ordered
        for key in [key for key in ordered if key not in self._had and key[0] != chosen]:
            del ordered[key]


def _timed(call: Callable[[CpuPlan], object], plan: CpuPlan) -> float:
    """Measure the seconds of one call; for short calls, the lower median of several in one measurement.

    The first call may have to wake threads on a processor that is busy with another program. It counts only
    if calls are so long that this does not matter.
    """
    once = duration(lambda: call(plan))
    if once >= _LONG_S:
        return once
    times: list[float] = []
    total = 0.0
    while total < _SHORT_S:
        times.append(duration(lambda: call(plan)))
        total += times[-1]
    return statistics.median_low(times) if len(times) > 1 else min(once, *times)
