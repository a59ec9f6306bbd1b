"""Cases for measuring operators: a graph, an operation, a width."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from onehop import Graph
from onehop.errors import ArgumentError

# Operation -> reduce. "sum_backward" is forward and backward, with the gradient to x.
OPERATIONS = {
    "sum": "sum",
    "weighted_sum": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
    "sum_backward": "sum",
}
WIDTHS = (16, 32, 64, 128, 256)


@dataclass
class Workload:
    """A graph, with what the peers make of it kept until it is done with.

    Attributes:
        name: For tables.
        edge_index: [2, E], int64.
        num_nodes: Number of nodes.
        kept: What :meth:`once` made.
    """

    name: str
    edge_index: Tensor
    num_nodes: int
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The graph as onehop keeps it."""
        return Graph.from_edge_index(self.edge_index, num_nodes=self.num_nodes)

    @cached_property
    def weight(self) -> Tensor:
        """[E], float32, between 0.5 and 1.5, in the order of ``edge_index``."""
        generator = torch.Generator().manual_seed(1)
        return torch.rand(self.edge_index.size(1), generator=generator, device="cpu") + 0.5

    @cached_property
    def sorted_weight(self) -> Tensor:
        """[E]: the weights in the order of ``graph.col``."""
        return self.weight if self.graph.perm is None else self.weight[self.graph.perm.long()]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.edge_index.size(1)

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """The result of ``make``, computed at the first request with this key."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


class Case:
    """One operation on one graph at one width, with its operands in float32."""

    def __init__(self, workload: Workload, operation: str, width: int) -> None:
        if operation not in OPERATIONS:
            raise ArgumentError(f"cases: expected some of {', '.join(OPERATIONS)}, got {operation!r}.")
        if width < 1:
            raise ArgumentError(f"widths: expected numbers of at least 1, got {width}.")
        generator = torch.Generator().manual_seed(2)
        self.workload = workload
        self.operation = operation
        self.width = width
        self.x = torch.randn(workload.num_nodes, width, generator=generator, device="cpu")
        """[N, F]."""
        self.grad = (
            torch.randn(workload.num_nodes, width, generator=generator, device="cpu")
            if self.backward
            else None
        )
        """[N, F], the gradient of the result; None for forward alone."""

    @property
    def reduce(self) -> str:
        """sum, mean, max or min."""
        return OPERATIONS[self.operation]

    @property
    def backward(self) -> bool:
        """Return whether the backward pass is run too."""
        return self.operation == "sum_backward"

    @property
    def weighted(self) -> bool:
        """Return whether edges have weights."""
        return self.operation == "weighted_sum"

    @property
    def weight(self) -> Tensor | None:
        """[E], in the order of ``edge_index``, or None."""
        return self.workload.weight if self.weighted else None

    def call(self, forward: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
        """The timed call: ``forward`` of x, or that and its backward; returns the result, or x's gradient."""
        if self.grad is None:
            return lambda: forward(self.x)
        x, grad = self.x.clone().requires_grad_(), self.grad

        def forward_and_backward() -> Tensor:
            return torch.autograd.grad(forward(x), x, grad)[0]

        return forward_and_backward
