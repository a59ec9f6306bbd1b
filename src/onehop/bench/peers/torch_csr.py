"""torch's sparse CSR tensors: MKL for sums, torch's own kernels where a reduce is named."""

from collections.abc import Callable

import torch
from torch import Tensor

from onehop.bench.cases import Case, Workload
from onehop.bench.peers.base import beta_warnings_ignored

_REDUCE = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


class TorchCsr:
    """``torch.sparse.mm`` with int32 or int64 indices."""

    def __init__(self, index_dtype: torch.dtype, *, reduce_kernel: bool) -> None:
        bits = "32" if index_dtype == torch.int32 else "64"
        self.name = f"torch-reduce-int{bits}" if reduce_kernel else f"torch-csr-int{bits}"
        self.index_dtype = index_dtype
        self.reduce_kernel = reduce_kernel

    def available(self) -> str | None:
        """Always."""
        return None

    def refuse(self, case: Case) -> str | None:
        """The product does sums; the reduce kernels do all."""
        if not self.reduce_kernel and case.reduce != "sum":
            return "the sparse product does sums only; see torch-reduce"
        if self.reduce_kernel and case.backward:
            return "forward only here: its backward is that of the sparse product; see torch-csr"
        return None

    def extra_bytes(self, case: Case) -> int:
        """Nothing for each edge and column."""
        return 0

    def build(self, case: Case) -> Callable[[], Tensor]:
        """The matrix has a row for each destination."""
        weighted = case.weighted
        key = f"torch-csr {self.index_dtype} {weighted}"
        matrix = case.workload.once(
            key, lambda: csr_tensor(case.workload, self.index_dtype, weighted=weighted)
        )
        if self.reduce_kernel:
            reduce = _REDUCE[case.reduce]
            return case.call(lambda x: torch.sparse.mm(matrix, x, reduce))
        return case.call(lambda x: torch.sparse.mm(matrix, x))


def csr_tensor(workload: Workload, index_dtype: torch.dtype, *, weighted: bool) -> Tensor:
    """The graph as a torch CSR tensor [num_dst, num_src] of ones or weights, repeated edges kept apart."""
    graph = workload.graph
    values = workload.sorted_weight if weighted else torch.ones(graph.num_edges, device="cpu")
    with beta_warnings_ignored():
        return torch.sparse_csr_tensor(
            graph.rowptr.to(index_dtype),
            graph.col.to(index_dtype),
            values,
            (graph.num_dst, graph.num_src),
            check_invariants=False,
            device="cpu",
        )
