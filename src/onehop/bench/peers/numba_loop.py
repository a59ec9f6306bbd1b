"""A naive parallel loop in numba."""

from typing import Any

import torch

from onehop.bench.cases import Case
from onehop.bench.peers.base import Forward, Peer
from onehop.bench.peers.sparse import of_arrays


class NumbaLoop(Peer):
    """Ten lines of Python over compressed rows; backward is the same loop over the transposed graph."""

    name = "numba"
    needs = ("numba",)

    def forward(self, case: Case) -> Forward:
        """Give numba the same number of threads as torch, within numba's limit."""
        import numba

        from onehop.bench.peers.numba_kernels import KERNELS

        most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        numba.set_num_threads(min(torch.get_num_threads(), most))
        graph = case.workload.graph
        kernel = KERNELS[case.operation.removesuffix("_backward")]
        rows = graph.rowptr.numpy(), graph.col.numpy()
        weight: tuple[Any, ...] = (case.workload.sorted_weight.numpy(),) if case.weighted else ()
        if not case.backward:
            return of_arrays(lambda x: kernel(*rows, x, *weight))
        transposed = graph.transposed_csr
        back = transposed.rowptr.numpy(), transposed.col.numpy()
        return of_arrays(lambda x: kernel(*rows, x), lambda grad: kernel(*back, grad))
