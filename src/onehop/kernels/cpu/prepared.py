"""The interface of prepared calls of the CPU's kernels.

A prepared call is made once for a graph, an operator, a direction, a width, a dtype and a plan, and kept; it
holds a structure of the extension with all that these decide. Running it copies the structure, which lets
several threads run at once, adds what tensors say, and calls the kernel.
"""

from typing import Any, NamedTuple, Protocol

import torch

from onehop.graph import Graph
from onehop.plans import CpuPlan


class PlanKey(NamedTuple):
    """The key by which a plan is chosen, besides the graph.

    Attributes:
        operation: One of :data:`onehop.plans.cases.OPERATIONS`.
        transposed: Whether rows are sources.
        width: Columns of a head.
        dtype: Of the features.
    """

    operation: str
    transposed: bool
    width: int
    dtype: torch.dtype


class Prepared(Protocol):
    """A call that runs on one graph, any number of times."""

    def __init__(self, graph: Graph, plan: CpuPlan, call: Any) -> None: ...

    @staticmethod
    def key(call: Any) -> tuple[Any, ...]:
        """The key of a call: calls of the same key run the same prepared call."""
        ...

    @staticmethod
    def case(call: Any) -> PlanKey:
        """The case by which the plan of a call is chosen."""
        ...

    def run(self, call: Any) -> Any:
        """The results of a call of the same key."""
        ...
