"""A naive parallel loop in numba."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.bench.cases import Case
from onehop.bench.peers.base import import_reason
from onehop.bench.peers.differentiable import forward_and_backward


class NumbaLoop:
    """Ten lines of Python over compressed rows; backward is the same loop over the transposed graph."""

    name = "numba"

    def available(self) -> str | None:
        """Needs numba."""
        return import_reason("numba")

    def refuse(self, case: Case) -> str | None:
        """Has every operation."""
        return None

    def extra_bytes(self, case: Case) -> int:
        """Nothing for each edge and column."""
        return 0

    def build(self, case: Case) -> Callable[[], Tensor]:
        """Gives numba as many threads as torch has, within what it allows."""
        import numba

        from onehop.bench.peers.numba_kernels import KERNELS

        most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        numba.set_num_threads(min(torch.get_num_threads(), most))
        graph = case.workload.graph
        kernel = KERNELS[case.operation.removesuffix("_backward")]
        operands: list[Any] = [graph.rowptr.numpy(), graph.col.numpy(), case.x.numpy()]
        if case.weighted:
            operands.append(case.workload.sorted_weight.numpy())
        if case.grad is None:
            return lambda: torch.from_numpy(kernel(*operands))
        transposed = graph.transposed_csr
        back = (transposed.rowptr.numpy(), transposed.col.numpy())
        return forward_and_backward(
            lambda x: torch.from_numpy(kernel(*operands[:2], x.detach().numpy())),
            lambda grad: torch.from_numpy(kernel(*back, grad.numpy())),
            case.x,
            case.grad,
        )
