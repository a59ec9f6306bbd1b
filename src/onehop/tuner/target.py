"""The target of tuning: what differs between this processor's C++ kernels and a GPU's."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from onehop.graph import Graph
from onehop.plans.entry import Tuned
from onehop.tuner.operations import Operation
from onehop.tuner.run import Tactics, Task


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

    def tactics(self, task: Task, free: Sequence[str]) -> Tactics[Any]:
        """The plans of a task; the ``free`` fields may differ from the default plan's."""
        ...

    def install(self, found: Tuned[Any], keep: bool) -> None:
        """Installs a plan in this process, and, with ``keep``, on disk."""
        ...
