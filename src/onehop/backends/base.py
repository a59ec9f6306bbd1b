"""The interface of a backend."""

from collections.abc import Set
from typing import Any, Protocol

import torch

from onehop.graph import Graph


class Backend(Protocol):
    """The interface of a backend that runs operators.

    Attributes:
        name: The backend's name for the argument ``backend=``.
        operators: The types of calls that it runs (:mod:`onehop.calls` documents each type).
    """

    name: str

    @property
    def operators(self) -> Set[type]:
        """The types of calls that the backend runs."""
        ...

    def describe(self) -> str:
        """Return one line that describes the backend and what it will use on this machine."""
        ...

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return why the backend cannot run on tensors of this device and dtype; None means that it can."""
        ...

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """Return the plan of a sum, at a cost that does not grow with the graph."""
        ...

    def run(self, graph: Graph, call: Any) -> Any:
        """Return the results of a call of one of ``operators``, on the graph that the call names."""
        ...
