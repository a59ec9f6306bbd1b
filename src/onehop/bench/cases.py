"""Cases for measuring operators: a graph, an operation and a width; and the expected results.

Results are compared with onehop's reference in float64 before anything is timed. The reference creates a row
for every edge, so it computes only some of the columns if edges times width is large. Columns do not depend
on each other; the first and the last column are always included.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from onehop import Graph, reference
from onehop.errors import ArgumentError
from onehop.ops.aggregate import Reduction

# Operation -> reduce. "sum_backward" is forward and backward, with the gradient to x.
OPERATIONS: dict[str, Reduction] = {
    "sum": "sum",
    "weighted_sum": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
    "sum_backward": "sum",
}
WIDTHS = (16, 32, 64, 128, 256)
# Maximum number of entries (edges times columns) that are compared, and that the reference creates at a time.
MOST_ENTRIES = 1 << 27
_AT_A_TIME = 1 << 25
# A result's error may be this many times the error of the naive sum in the same precision.
SLACK = 8


@dataclass
class Workload:
    """A graph, with the peers' own forms of it, which are kept until the graph is no longer needed.

    Attributes:
        name: The graph's name in tables.
        edge_index: [2, E], int64.
        num_nodes: Number of nodes.
        cache: The results of :meth:`once`.
    """

    name: str
    edge_index: Tensor
    num_nodes: int
    cache: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def graph(self) -> Graph:
        """The graph as an onehop graph."""
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
        """Return the result of ``make``, which is called at the first request with this key."""
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]


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
        """[N, F], the gradient of the result; None if only the forward pass is run."""

    @property
    def reduce(self) -> Reduction:
        """The reduction: sum, mean, max or min."""
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
        """Return the timed call: it returns ``forward`` of x or, with backward, the gradient of x."""
        if self.grad is None:
            return lambda: forward(self.x)
        x, grad = self.x.clone().requires_grad_(), self.grad

        def forward_and_backward() -> Tensor:
            return torch.autograd.grad(forward(x), x, grad)[0]

        return forward_and_backward


class Oracle:
    """The expected result of a case."""

    def __init__(self, case: Case, most_entries: int = MOST_ENTRIES) -> None:
        edges = max(case.workload.num_edges, 1)
        count = min(max(most_entries // edges, 2), case.width)
        self.columns = torch.linspace(0, case.width - 1, count, device="cpu").round().long()
        """[C], the columns that are compared."""
        self._shape = (case.workload.num_nodes, case.width)
        degrees = case.workload.graph.out_degrees if case.backward else case.workload.graph.in_degrees
        # A sum's rounding error grows with the number of terms.
        self._scale = (
            (degrees + 1).double().unsqueeze(-1) if case.reduce == "sum" else torch.tensor(1.0, device="cpu")
        )
        self._expected = _run(case, self.columns, torch.float64)
        naive = _run(case, self.columns, torch.float32)
        self.tolerance = SLACK * self._error(naive) + torch.finfo(torch.float32).eps
        """Maximum allowed error; for sums, a row's error is first divided by its number of edges plus one."""

    def judge(self, result: Tensor) -> str | None:
        """Return None if ``result`` [N, F] is right, else a sentence."""
        if tuple(result.shape) != self._shape:
            return f"has shape {list(result.shape)} in place of {list(self._shape)}"
        error = self._error(result.detach()[:, self.columns])
        if error <= self.tolerance:
            return None
        return f"is {error:.2g} off the reference, where rounding explains {self.tolerance:.2g}"

    def _error(self, values: Tensor) -> float:
        if values.numel() == 0:
            return 0.0
        difference = (values.double() - self._expected).abs() / self._scale
        return float("inf") if bool(difference.isnan().any()) else float(difference.max())


def _run(case: Case, columns: Tensor, dtype: torch.dtype) -> Tensor:
    edges = max(case.workload.num_edges, 1)
    parts = torch.split(columns, max(_AT_A_TIME // edges, 1))
    return torch.cat([_reference(case, part, dtype) for part in parts], dim=1)


def _reference(case: Case, columns: Tensor, dtype: torch.dtype) -> Tensor:
    x = case.x[:, columns].to(dtype).requires_grad_(case.backward)
    weight = None if case.weight is None else case.weight.to(dtype)
    out = reference.aggregate(case.workload.edge_index, x, case.workload.num_nodes, weight, case.reduce)
    if case.grad is None:
        return out
    (grad,) = torch.autograd.grad(out, x, case.grad[:, columns].to(dtype))
    return grad
