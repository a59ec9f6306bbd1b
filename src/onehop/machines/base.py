"""What every simulated machine offers."""

from typing import Any, Protocol

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.machines.report import Report


class Machine(Protocol):
    """Simulated hardware that aggregates: it gives the true result, and what the run would have taken."""

    @property
    def name(self) -> str:
        """Of its configuration."""
        ...

    def describe(self) -> str:
        """One line on what it is."""
        ...

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Why it cannot aggregate features of this dtype; None means it can."""
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
            plan: The machine's own kind of plan; None means its default.
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
