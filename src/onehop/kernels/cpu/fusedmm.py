"""Sums over edges that are weighted by a function of their two ends, on the CPU."""

from typing import Any

from torch import Tensor

from onehop.calls import Fusedmm
from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, planned, rows
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::PairRule in csrc/include/onehop/kernels.hpp.
_RULES = {"dot": 0, "sigmoid": 1, "tdist": 2}


class PreparedFusedmm:
    """Messages times their weights, summed over each row in one pass; uses the plans of ``sddmm``."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: Fusedmm) -> None:
        self.csr = graph.csr
        self.template = planned(extension.FusedmmCall(), plan, call.src.dtype)
        self.template.rule = _RULES[call.rule]
        self.template.width = call.src.size(1)

    @staticmethod
    def key(call: Fusedmm) -> tuple[Any, ...]:
        """Return the rule, the width and the dtype."""
        return Fusedmm, call.rule, call.src.shape[1], call.src.dtype

    @staticmethod
    def case(call: Fusedmm) -> PlanKey:
        """Return the case of a call, which depends on the number of columns."""
        return PlanKey("sddmm", False, call.src.size(1), call.src.dtype)

    def run(self, call: Fusedmm) -> Tensor:
        """Run the call; return [rows, F]."""
        dst, src = rows(call.dst), rows(call.src)
        out = empty((self.csr.rows, src.size(1)), src.dtype)
        if self.template.width:
            native = self.template.copy()
            native.factor = call.factor
            native.row_vectors, native.row_stride = address(dst), dst.stride(0)
            native.col_vectors, native.col_stride = address(src), src.stride(0)
            native.out = out.data_ptr()
            extension.fusedmm(native, self.csr)
        return out
