"""torch_sparse, the extension that PyG used before torch had sparse kernels."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from onehop.bench.cases import Case, Workload
from onehop.bench.peers.base import import_reason


class TorchSparse:
    """``SparseTensor.matmul``, its caches filled."""

    name = "torch_sparse"

    def available(self) -> str | None:
        """Needs torch_sparse."""
        return import_reason("torch_sparse")

    def refuse(self, case: Case) -> str | None:
        """Has every operation."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Nothing for each edge and column."""
        return 0

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Sorts the edges and fills the caches."""
        weight, reduce = case.weight, case.reduce
        key = f"SparseTensor {case.weighted}"
        matrix = case.workload.once(key, lambda: sparse_tensor(case.workload, weight))

        def forward(x: Tensor) -> Tensor:
            result: Tensor = matrix.matmul(x, reduce=reduce)
            return result

        return case.call(forward)


def sparse_tensor(workload: Workload, weight: Tensor | None) -> Any:
    """The graph as a SparseTensor [num_dst, num_src], repeated edges kept apart."""
    from torch_sparse import SparseTensor

    source, target = workload.edge_index
    size = (workload.num_nodes, workload.num_nodes)
    return SparseTensor(row=target, col=source, value=weight, sparse_sizes=size).fill_cache_()
