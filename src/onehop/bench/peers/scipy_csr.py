"""SciPy's CSR product, on one thread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from onehop.bench.cases import Case
from onehop.bench.peers.differentiable import forward_and_backward


class ScipyCsr:
    """``csr_array @ x``; the mean by a matrix of 1 / degree; the backward pass by the transposed matrix."""

    name = "scipy"

    def available(self) -> str | None:
        """Always."""
        return None

    def refuse(self, case: Case) -> str | None:
        """Products only."""
        return "does sums and means only" if case.reduce in ("max", "min") else None

    def extra_bytes(self, case: Case) -> int:
        """Nothing for each edge and column."""
        return 0

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Builds the matrix, and the transposed one for the backward pass."""
        matrix = case.workload.once(f"scipy {case.operation}", lambda: _matrix(case))
        x = case.x.numpy()
        if case.grad is None:
            return lambda: torch.from_numpy(matrix @ x)
        transposed = case.workload.once("scipy transposed", lambda: matrix.T.tocsr())
        return forward_and_backward(
            lambda x: torch.from_numpy(matrix @ x.detach().numpy()),
            lambda grad: torch.from_numpy(transposed @ grad.numpy()),
            case.x,
            case.grad,
        )


def _matrix(case: Case) -> Any:
    graph = case.workload.graph
    if case.reduce == "mean":
        values = graph.inverse_in_degrees(torch.float32).repeat_interleave(graph.in_degrees).numpy()
    elif case.weighted:
        values = case.workload.sorted_weight.numpy()
    else:
        values = np.ones(graph.num_edges, dtype=np.float32)
    # Row pointers of the same 32 bits as the columns: SciPy would widen both.
    rowptr = graph.rowptr.int().numpy() if graph.num_edges < 2**31 else graph.rowptr.numpy()
    return scipy.sparse.csr_array((values, graph.col.numpy(), rowptr), shape=(graph.num_dst, graph.num_src))
