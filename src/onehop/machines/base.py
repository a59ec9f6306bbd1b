"""The interface of every simulated machine."""

from typing import Any, Protocol

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.machines.report import Report


class Machine(Protocol):
    """Simulated hardware that aggregates: returns the true result and a report of the simulated run."""

    @property
    def name(self) -> str:
        """Name of the configuration."""
        ...

    def describe(self) -> str:
        """One line that describes the machine."""
        ...

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why it cannot aggregate features of this dtype, or None if it can."""
        ...

    def aggregate(
        self,
        graph: Graph,
        x: Tensor,
        plan: Any = None,
        *,
        weight: Tensor | None = None,
        reduce: str = "sum",
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> tuple[Tensor, Report]:
        """Aggregates features over a graph, as :func:`onehop.aggregate` does.

        Args:
            graph: The graph; for a backward pass, its transpose.
            x: [num_src, F], on the CPU.
            plan: A plan of the machine's own kind; None means its default.
            weight: [E], in the caller's edge order; None means 1.
            reduce: "sum" or "mean".
            src_scale: [num_src], multiplies the features on the host before they are sent; None means 1.
            dst_scale: [num_dst], multiplies the results on the host; None means 1.

        Returns:
            [num_dst, F], and the report.

        Raises:
            ArgumentError: A shape, dtype or plan does not fit.
        """
        ...
