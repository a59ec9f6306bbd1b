"""The C++ kernels on the processor."""

import weakref
from typing import Any, NamedTuple

import torch

from onehop import native, thresholds
from onehop.graph import Graph
from onehop.kernels.cpu import KERNELS
from onehop.kernels.cpu.prepared import Prepared
from onehop.plans import CpuPlan, changes, tuned
from onehop.plans.default import default_plan

_threads = torch.get_num_threads


class _KeptCall(NamedTuple):
    """A prepared call, and the conditions under which it may be run again."""

    prepared: Prepared
    threads: int
    bounds: thresholds.Thresholds
    changes: int


class CpuBackend:
    """Register-blocked loops over compressed sparse rows, for the best available instruction set.

    Args:
        plan: The plan for every call; None means the tuned plan if there is one, else the default plan.
    """

    name = "cpu"
    operators = frozenset(KERNELS)

    def __init__(self, plan: CpuPlan | None = None) -> None:
        self._plan = plan
        # Calls prepared with a given plan; calls prepared with default and tuned plans are kept with the
        # graph.
        self._own: weakref.WeakKeyDictionary[Graph, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def describe(self) -> str:
        """Return the instruction set and the threads."""
        available = ", ".join(native.extension.available_isas())
        pool = (
            "torch's OpenMP threads"
            if native.extension.openmp_bound()
            else "one thread (torch's OpenMP not found)"
        )
        return (
            f"C++ kernels, {native.extension.selected_isa()} (of {available}), {native.threads()} of {pool}"
        )

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return why the tensors are refused; the backend runs on CPU tensors of the four float types."""
        if device.type != "cpu":
            return f"runs on CPU tensors, not on {device.type}"
        if dtype not in native.DTYPE_CODES:
            return f"computes in float32, float64, bfloat16 and float16, not in {dtype}"
        return None

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> CpuPlan:
        """Return the plan of a sum or mean."""
        return self.plan_for(graph, "sum", transposed, width, dtype)

    def plan_for(
        self, graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype
    ) -> CpuPlan:
        """Return the plan of an operation (one of :data:`onehop.plans.cases.OPERATIONS`)."""
        return self._plan_and_stays(graph, operation, transposed, width, dtype)[0]

    def _plan_and_stays(
        self, graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype
    ) -> tuple[CpuPlan, bool]:
        """Return the plan, and whether the next call gets the same plan (not while an order is missing)."""
        if self._plan is not None:
            return self._plan, True
        found = tuned.find(graph, operation, transposed, width, dtype)
        if found is not None:
            return found.plan, found.stays
        sources, rows = (graph.num_dst, graph.num_src) if transposed else (graph.num_src, graph.num_dst)
        return default_plan(sources, rows, graph.num_edges, width, dtype.itemsize), True

    def run(self, graph: Graph, call: Any) -> Any:
        """Run a call of :mod:`onehop.calls`, which is prepared now unless it was prepared before."""
        kind = KERNELS[type(call)]
        key = kind.key(call)
        kept: _KeptCall | None = self._calls_of(graph).get(key) if self._plan else graph.prepared.get(key)
        if (
            kept is None
            or kept.threads != _threads()
            or kept.bounds is not thresholds.now
            or kept.changes != changes.count
        ):
            return self._prepare(graph, kind, key, call).run(call)
        return kept.prepared.run(call)

    def _calls_of(self, graph: Graph) -> dict[Any, Any]:
        if self._plan is None:
            return graph.prepared
        found = self._own.get(graph)
        return self._own.setdefault(graph, {}) if found is None else found

    def _prepare(self, graph: Graph, kind: type[Prepared], key: Any, call: Any) -> Prepared:
        """Choose a plan, bind the call to the graph, and keep it until something it depends on changes."""
        # Read before the plan is looked up, so that the next call notices changes made in the meantime.
        threads, bounds, count = _threads(), thresholds.now, changes.count
        case = kind.case(call)
        plan, stays = self._plan_and_stays(graph, case.operation, case.transposed, case.width, case.dtype)
        prepared = kind(graph, plan, call)
        if stays:
            self._calls_of(graph)[key] = _KeptCall(prepared, threads, bounds, count)
        return prepared
