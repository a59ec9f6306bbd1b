"""The interface of prepared calls of CPU kernels.

A prepared call is made once for a graph, an operator, a direction, a width, a dtype and a plan, and is
cached. It has a structure of the extension with all fields that depend on these. Running it copies the
structure, so that several threads can run at once, sets the fields that depend on tensors, and calls the
kernel.
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
        dtype: The dtype of the features.
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
        """Return the key of a call; calls with the same key run the same prepared call."""
        ...

    @staticmethod
    def case(call: Any) -> PlanKey:
        """Return the case by which the plan of a call is chosen."""
        ...

    def run(self, call: Any) -> Any:
        """Return the results of a call with the same key."""
        ...
