"""The interface of a backend."""

from collections.abc import Set
from typing import Any, Protocol

import torch

from onehop.graph import Graph


class Backend(Protocol):
    """A way to run operators.

    Attributes:
        name: What ``backend=`` calls it.
        operators: The kinds of calls that it runs (:mod:`onehop.calls` says what each means).
    """

    name: str

    @property
    def operators(self) -> Set[type]:
        """The kinds of calls that it runs."""
        ...

    def describe(self) -> str:
        """One line on what it is and what it will use on this machine."""
        ...

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """The reason why it cannot run on such tensors; None means it can."""
        ...

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """The plan of a sum, at a cost that does not grow with the graph."""
        ...

    def run(self, graph: Graph, call: Any) -> Any:
        """The results of a call of one of ``operators``, on the graph that it names."""
        ...
