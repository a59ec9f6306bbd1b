"""Tuning of the Triton kernels on a GPU."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onehop.backends.triton import TritonBackend
from onehop.errors import ConfigurationError
from onehop.graph import Graph
from onehop.graph.reorder import row_order
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan, gpu_tuned
from onehop.plans.cases import GpuCase, gpu_case_of, graph_key
from onehop.plans.entry import Tuned
from onehop.tuner import calls
from onehop.tuner.calls import Site
from onehop.tuner.gpu import candidates
from onehop.tuner.operations import GPU, Operation, operations
from onehop.tuner.run import Tactics, Task

# Calls shorter than this are repeated within one measurement.
_SHORT_S = 2e-3
_MOST_REPEATS = 200


def seconds_of(call: Callable[[TritonPlan], object], plan: TritonPlan, device: torch.device) -> float:
    """Return the seconds of one call of a plan that has run before; for short calls, a mean of several."""
    once = device_seconds(lambda: call(plan), device)
    if once >= _SHORT_S:
        return once
    repeats = min(math.ceil(_SHORT_S / max(once, 1e-7)), _MOST_REPEATS)

    def repeated() -> None:
        for _ in range(repeats):
            call(plan)

    return device_seconds(repeated, device) / repeats


def device_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds from the start of a call's work on the device to its end."""
    if device.type != "cuda":
        return calls.duration(call)
    with torch.cuda.device(device):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        call()
        stop.record()
        stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3


LOGGER = logging.getLogger("onehop")

# Default seconds per width; every plan is compiled before it is measured, which takes about a second.
BUDGET_S = 30.0

# An order must pay off within this many runs: some hundred epochs of a model of a few layers.
PAYBACK_RUNS = 1000


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """The Triton kernels on a GPU or, in Triton's interpreter, on the CPU, as a target of tuning.

    Attributes:
        op: The operator to tune.
        reduce: The operator's reduction, for "aggregate".
        backward: Whether the gradient is tuned too.
        heads: Number of heads that share the columns.
        device: The device.
    """

    op: str
    reduce: str
    backward: bool
    heads: int
    device: torch.device
    fields: tuple[str, ...] = GPU.fields
    budget_s: float = BUDGET_S

    def machine(self) -> dict[str, Any]:
        """The properties of the GPU and its software."""
        return availability.machine(self.device)

    def refuse(self, width: int, dtype: torch.dtype) -> str | None:
        """Return why a width or dtype cannot be tuned, or None if both can; heads must divide the width."""
        if width % self.heads:
            return f"width: {width} columns cannot be shared evenly by {self.heads} heads."
        reason = TritonBackend().refuse(self.device, dtype)
        return None if reason is None else f"dtype: the backend triton {reason}."

    def operations(self) -> tuple[Operation, ...]:
        """Return the operation's directions, forward first."""
        site = Site(TritonBackend, self.device, self.heads)
        return operations(self.op, self.reduce, self.backward, GPU, site)

    def case(self, graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> GpuCase:
        """Return the case of a plan."""
        name, device = operation.name, self.machine()["gpu"]
        return gpu_case_of(graph, name, operation.transposed, width, self.heads, dtype, device)

    def known(self, case: GpuCase) -> Tuned[TritonPlan] | None:
        """Return the entry for exactly this case, or None."""
        return gpu_tuned.known(case, self.machine())

    def is_due(self, before: Tuned[TritonPlan]) -> bool:
        """Return whether a search was interrupted."""
        return not before.finished

    def tactics(self, task: Task, free: Sequence[str]) -> "GpuTactics":
        """Return the tactics for a task."""
        return GpuTactics(task, self.device, free)

    def install(self, entry: Tuned[TritonPlan], keep: bool) -> None:
        """Install a plan in this process and, with ``keep``, on disk."""
        gpu_tuned.install([entry], self.machine(), keep)


class GpuTactics(Tactics[TritonPlan]):
    """The plans of one task on a GPU.

    There is no cost model: the time of a plan is known only after it has run. Each run of a plan with an
    order is charged with its share of the time to compute the order, so an order wins only if it pays off in
    time.
    """

    payback_runs = PAYBACK_RUNS

    def __init__(self, task: Task, device: torch.device, free: Sequence[str]) -> None:
        graph, case, operation = task.graph, task.case, task.operation
        sizes = case.width, case.heads, task.dtype
        axes = candidates.axes(graph, operation, *sizes, candidates.cache_bytes(device))
        super().__init__(task, candidates.start(graph, operation, *sizes), axes, free)
        self._device = device
        self._had, self._had_orders = set(graph.derived), set(graph.orders)
        self._ready: dict[TritonPlan, bool] = {}

    def predict(self, plan: TritonPlan) -> float:
        """Return 0, because plans are not predicted before they run; infinite if registers do not suffice."""
        return 0.0 if candidates.holds(plan, self.task.case.width) else math.inf

    def seconds(self, call: Callable[[TritonPlan], Any], plan: TritonPlan) -> float:
        """Measure a call; the first call, which compiles the kernels, is not measured."""
        if plan not in self._ready:
            self._ready[plan] = self._runs(call, plan)
        return seconds_of(call, plan, self._device) if self._ready[plan] else math.inf

    def _runs(self, call: Callable[[TritonPlan], Any], plan: TritonPlan) -> bool:
        """Compile the plan's kernels, and return whether the GPU has enough resources for it."""
        from triton.runtime.errors import OutOfResources

        try:
            call(plan)
        except OutOfResources as error:
            LOGGER.info("%s is not tried: %s", plan, error)
            return False
        return True

    def make_order(self, name: str) -> None:
        """Compute an order."""
        row_order(self.task.graph, name, self.task.operation.transposed)

    def facts(self, best: TritonPlan) -> dict[str, Any]:
        """Return the graph's statistics; free the data of rejected plans, which is rebuilt when needed."""
        graph = self.task.graph
        with graph.lock:
            for key in set(graph.derived) - self._had:
                del graph.derived[key]
            for name in set(graph.orders) - self._had_orders - {best.ordering}:
                del graph.orders[name]
        return {"predicted_s": None, "figures": graph_key(graph)}


def gpu_device(device: torch.device) -> torch.device:
    """Return the device on which GPU plans are tuned; the interpreter, if enabled, uses CPU tensors.

    Raises:
        ConfigurationError: The GPU kernels cannot run here.
    """
    reason = availability.missing()
    if reason is None:
        if device.index is None or availability.interpreted():
            device = availability.current()
        reason = availability.refuses(device)
    if reason is not None:
        raise ConfigurationError(f"onehop.tune: device='cuda': the backend triton {reason}.")
    return device
