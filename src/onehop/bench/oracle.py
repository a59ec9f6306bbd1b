"""Correctness first: results are compared with onehop's reference in float64 before anything is timed.

The reference makes a row for every edge, so where edges times width is large it is asked for some of the
columns only. Columns do not depend on each other; the first and the last are always among them.
"""

import torch
from torch import Tensor

from onehop import reference
from onehop.bench.cases import Case

# Entries (edges times columns) that are compared at most, and that the reference makes at a time.
MOST_ENTRIES = 1 << 27
_AT_A_TIME = 1 << 25
# A result may be this many times further from the reference than the naive sum of the same precision.
SLACK = 8


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
        """Largest error allowed; for sums, of a row's error divided by its number of edges plus one."""

    def judge(self, result: Tensor) -> str | None:
        """None if ``result`` [N, F] is right, else a sentence."""
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
