"""Products of sparse matrices: torch's CSR tensors, SciPy and torch_sparse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from onehop.bench.cases import Case, Workload
from onehop.bench.peers.base import Forward, Peer, beta_warnings_ignored

_REDUCE = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}
_ArrayProduct = Callable[[Any], Any]


class TorchCsr(Peer):
    """``torch.sparse.mm`` with int32 or int64 indices: MKL for sums, torch's kernels with a reduce."""

    def __init__(self, index_dtype: torch.dtype, *, reduce_kernel: bool) -> None:
        bits = "32" if index_dtype == torch.int32 else "64"
        self.name = f"torch-reduce-int{bits}" if reduce_kernel else f"torch-csr-int{bits}"
        self.index_dtype = index_dtype
        self.reduce_kernel = reduce_kernel

    def refuse(self, case: Case) -> str | None:
        """Refuse what it lacks: the product only does sums; the reduce kernels do all, but only forward."""
        if not self.reduce_kernel and case.reduce != "sum":
            return "the sparse product does sums only; see torch-reduce"
        if self.reduce_kernel and case.backward:
            return "forward only here: its backward is that of the sparse product; see torch-csr"
        return None

    def forward(self, case: Case) -> Forward:
        """Build the matrix, with a row for each destination."""
        weighted = case.weighted
        key = f"torch-csr {self.index_dtype} {weighted}"
        matrix = case.workload.once(
            key, lambda: csr_tensor(case.workload, self.index_dtype, weighted=weighted)
        )
        if self.reduce_kernel:
            reduce = _REDUCE[case.reduce]
            return lambda x: torch.sparse.mm(matrix, x, reduce)
        return lambda x: torch.sparse.mm(matrix, x)


def csr_tensor(workload: Workload, index_dtype: torch.dtype, *, weighted: bool) -> Tensor:
    """Return the graph as a torch CSR tensor [num_dst, num_src] of ones or weights; repeated edges stay."""
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


class ScipyCsr(Peer):
    """``csr_array @ x`` on one thread; the mean uses a matrix of 1 / degree."""

    name = "scipy"

    def refuse(self, case: Case) -> str | None:
        """Refuse everything except products."""
        return "does sums and means only" if case.reduce in ("max", "min") else None

    def forward(self, case: Case) -> Forward:
        """Build the matrix, and the transposed matrix for the backward pass."""
        matrix = case.workload.once(f"scipy {case.operation}", lambda: _csr_array(case))
        if not case.backward:
            return of_arrays(lambda x: matrix @ x)
        transposed = case.workload.once("scipy transposed", lambda: matrix.T.tocsr())
        return of_arrays(lambda x: matrix @ x, lambda grad: transposed @ grad)


def _csr_array(case: Case) -> Any:
    graph = case.workload.graph
    if case.reduce == "mean":
        values = graph.inverse_in_degrees(torch.float32).repeat_interleave(graph.in_degrees).numpy()
    elif case.weighted:
        values = case.workload.sorted_weight.numpy()
    else:
        values = np.ones(graph.num_edges, dtype=np.float32)
    # Row pointers have 32 bits, like the columns; otherwise SciPy would widen both.
    rowptr = graph.rowptr.int().numpy() if graph.num_edges < 2**31 else graph.rowptr.numpy()
    return scipy.sparse.csr_array((values, graph.col.numpy(), rowptr), shape=(graph.num_dst, graph.num_src))


class TorchSparse(Peer):
    """``SparseTensor.matmul`` of torch_sparse, which PyG used before torch had sparse kernels."""

    name = "torch_sparse"
    needs = ("torch_sparse",)

    def forward(self, case: Case) -> Forward:
        """Sort the edges and fill the caches."""
        matrix, reduce = case_tensor(case), case.reduce
        return lambda x: matrix.matmul(x, reduce=reduce)


def case_tensor(case: Case) -> Any:
    """Return the case's graph as a SparseTensor with its weights, built once."""
    key = f"SparseTensor {case.weighted}"
    return case.workload.once(key, lambda: sparse_tensor(case.workload, case.weight))


def sparse_tensor(workload: Workload, weight: Tensor | None) -> Any:
    """Return the graph as a SparseTensor [num_dst, num_src]; repeated edges stay."""
    from torch_sparse import SparseTensor

    source, target = workload.edge_index
    size = (workload.num_nodes, workload.num_nodes)
    return SparseTensor(row=target, col=source, value=weight, sparse_sizes=size).fill_cache_()


def of_arrays(product: _ArrayProduct, transposed: _ArrayProduct | None = None) -> Forward:
    """Return a function of tensors made from a product of NumPy arrays.

    Args:
        product: The product, which must be linear if there is a transposed one.
        transposed: The product for the gradient; with it, the function is a node of torch's autograd graph,
            as users would have to write it. None means that the function has no gradient.
    """
    if transposed is None:
        return lambda x: torch.from_numpy(product(x.numpy()))
    return lambda x: _Linear.apply(x, product, transposed)  # type: ignore[no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, product: _ArrayProduct, transposed: _ArrayProduct) -> Tensor:
        ctx.transposed = transposed
        return torch.from_numpy(product(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return torch.from_numpy(ctx.transposed(grad.numpy())), None, None
