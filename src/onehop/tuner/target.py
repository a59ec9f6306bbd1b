"""The target of tuning: this processor's C++ kernels, or a GPU's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from onehop.backends.cpu import CpuBackend
from onehop.backends.triton import TritonBackend
from onehop.errors import ConfigurationError
from onehop.graph import Graph
from onehop.kernels.cpu import generated
from onehop.kernels.triton import availability
from onehop.plans import CpuPlan, TritonPlan, gpu_tuned, store, tuned
from onehop.plans.cases import GpuCase, PlanCase, case_of, gpu_case_of
from onehop.plans.entry import Tuned
from onehop.tuner import operations
from onehop.tuner.calls import Site
from onehop.tuner.gpu import operations as gpu_operations
from onehop.tuner.gpu.run import GpuRun
from onehop.tuner.operations import Operation
from onehop.tuner.report import ProgressReport
from onehop.tuner.run import CpuRun
from onehop.tuner.search import Budget, Steps

# Seconds for each width. On a GPU every plan is compiled before it is measured, which takes a second or so.
DEFAULT_BUDGET_S, GPU_BUDGET_S = 10.0, 30.0


class Target(Protocol):
    """One operation on one machine."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of its plans."""
        ...

    @property
    def budget_s(self) -> float:
        """Seconds for a width by default."""
        ...

    def machine(self) -> dict[str, Any]:
        """The stamp of its plans' file."""
        ...

    def refuse(self, width: int, dtype: torch.dtype) -> str | None:
        """Return which of the two cannot be tuned, and why; None if both can."""
        ...

    def operations(self) -> tuple[Operation, ...]:
        """Its directions, forward first."""
        ...

    def case(self, graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> Any:
        """The case of a plan."""
        ...

    def known(self, case: Any) -> Tuned[Any] | None:
        """The entry for exactly this case."""
        ...

    def is_due(self, before: Tuned[Any]) -> bool:
        """Return whether an earlier search left something to find."""
        ...

    def run(
        self,
        graph: Graph,
        case: Any,
        operation: Operation,
        dtype: torch.dtype,
        free: Sequence[str],
        budget: Budget,
        report: ProgressReport,
        before: Tuned[Any] | None,
    ) -> Any:
        """A search; its ``found()`` returns the best result so far."""
        ...

    def steps(self, run: Any) -> Steps[None]:
        """The search's steps."""
        ...

    def install(self, found: Tuned[Any], keep: bool) -> None:
        """Installs a plan in this process, and, with ``keep``, on disk."""
        ...


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """The C++ kernels on this processor.

    Attributes:
        op: The operator to tune.
        reduce: Its reduction, for "aggregate".
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
    fields: tuple[str, ...] = operations.FIELDS

    @property
    def budget_s(self) -> float:
        """Seconds for a width by default: twice as many with generated kernels."""
        return DEFAULT_BUDGET_S * (2 if self.codegen else 1)

    def machine(self) -> dict[str, Any]:
        """The processor."""
        return store.machine()

    def refuse(self, width: int, dtype: torch.dtype) -> str | None:
        """Return which of the two cannot be tuned, and why: the backend knows its dtypes."""
        reason = CpuBackend().refuse(torch.device("cpu"), dtype)
        return None if reason is None else f"dtype: the CPU backend {reason}."

    def operations(self) -> tuple[Operation, ...]:
        """Its directions, forward first."""
        return operations.operations(self.op, self.reduce, self.backward)

    def case(self, graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> PlanCase:
        """The case of a plan."""
        return case_of(graph, operation.name, operation.transposed, width, dtype)

    def known(self, case: PlanCase) -> Tuned[CpuPlan] | None:
        """The entry for exactly this case."""
        return tuned.known(case)

    def is_due(self, before: Tuned[CpuPlan]) -> bool:
        """Return whether a search was interrupted, or a generated kernel no longer exists."""
        if not before.finished:
            return True
        lost = before.plan.generated and generated.why_not(before.plan.generated) is not None
        return self.codegen and (not before.raced or bool(lost))

    def run(
        self,
        graph: Graph,
        case: PlanCase,
        operation: Operation,
        dtype: torch.dtype,
        free: Sequence[str],
        budget: Budget,
        report: ProgressReport,
        before: Tuned[CpuPlan] | None,
    ) -> CpuRun:
        """A search."""
        return CpuRun(graph, case, operation, dtype, self.lossy, free, budget, report, before, self.codegen)

    def steps(self, run: CpuRun) -> Steps[None]:
        """The search's steps."""
        return run.search_plans(self.op, self.reduce, self.compared)

    def install(self, found: Tuned[CpuPlan], keep: bool) -> None:
        """Installs a plan; plans that round features are for this process only."""
        tuned.install([found], keep and found.plan.storage == "same")


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """The Triton kernels on a GPU, or, in the interpreter, on the CPU.

    Attributes:
        op: The operator to tune.
        reduce: Its reduction, for "aggregate".
        backward: Whether the gradient is tuned too.
        heads: Number of heads that share the columns.
        device: The device.
    """

    op: str
    reduce: str
    backward: bool
    heads: int
    device: torch.device
    fields: tuple[str, ...] = gpu_operations.FIELDS
    budget_s: float = GPU_BUDGET_S

    def machine(self) -> dict[str, Any]:
        """The GPU and its software."""
        return availability.machine(self.device)

    def refuse(self, width: int, dtype: torch.dtype) -> str | None:
        """Return which of the two cannot be tuned, and why; heads must share the columns evenly."""
        if width % self.heads:
            return f"width: {width} columns cannot be shared evenly by {self.heads} heads."
        reason = TritonBackend().refuse(self.device, dtype)
        return None if reason is None else f"dtype: the backend triton {reason}."

    def operations(self) -> tuple[Operation, ...]:
        """Its directions, forward first."""
        site = Site(TritonBackend, self.device, self.heads)
        return gpu_operations.operations(self.op, self.reduce, self.backward, site)

    def case(self, graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> GpuCase:
        """The case of a plan."""
        name, device = operation.name, self.machine()["gpu"]
        return gpu_case_of(graph, name, operation.transposed, width, self.heads, dtype, device)

    def known(self, case: GpuCase) -> Tuned[TritonPlan] | None:
        """The entry for exactly this case."""
        return gpu_tuned.known(case, self.machine())

    def is_due(self, before: Tuned[TritonPlan]) -> bool:
        """Return whether a search was interrupted."""
        return not before.finished

    def run(
        self,
        graph: Graph,
        case: GpuCase,
        operation: Operation,
        dtype: torch.dtype,
        free: Sequence[str],
        budget: Budget,
        report: ProgressReport,
        before: Tuned[TritonPlan] | None,
    ) -> GpuRun:
        """A search."""
        return GpuRun(graph, case, operation, dtype, self.device, free, budget, report, before)

    def steps(self, run: GpuRun) -> Steps[None]:
        """The search's steps."""
        return run.search_plans()

    def install(self, found: Tuned[TritonPlan], keep: bool) -> None:
        """Installs a plan in this process, and, with ``keep``, on disk."""
        gpu_tuned.install([found], self.machine(), keep)


def gpu_device(device: torch.device) -> torch.device:
    """The device that GPU plans are tuned on; the interpreter, if enabled, takes CPU tensors.

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
