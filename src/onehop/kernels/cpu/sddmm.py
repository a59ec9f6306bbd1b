"""A dot product for every edge, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import Sddmm, accumulator
from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, planned
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan


class PreparedSddmm:
    """Dot products of the destinations' and the sources' rows for every edge."""

    __slots__ = ("csr", "inverse", "out_dtype", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: Sddmm) -> None:
        heads, width = call.src.shape[1:]
        self.csr = graph.csr
        self.inverse = graph.inverse_in_degrees(call.dst.dtype).view(-1, 1, 1) if call.mean else None
        self.out_dtype = accumulator(call.src.dtype) if call.widen else call.src.dtype
        self.template = planned(extension.SddmmCall(), plan, call.src.dtype)
        self.template.out_is_acc = self.out_dtype is not call.src.dtype
        self.template.heads = self.template.out_stride = heads
        self.template.width = width

    @staticmethod
    def key(call: Sddmm) -> tuple[Any, ...]:
        """Return the heads, the width and the dtypes."""
        return Sddmm, call.mean, call.widen, *call.src.shape[1:], call.src.dtype

    @staticmethod
    def case(call: Sddmm) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of a head."""
        return PlanKey("sddmm", False, call.src.size(2), call.src.dtype)

    def run(self, call: Sddmm) -> Tensor:
        """Run the call; return [E, H], in the caller's edge order."""
        shape = (self.csr.edges, self.template.heads)
        if not self.template.width:
            return torch.zeros(shape, dtype=self.out_dtype, device="cpu")
        out = empty(shape, self.out_dtype)
        dst = call.dst if self.inverse is None else call.dst * self.inverse
        dst, src = _by_heads(dst), _by_heads(call.src)
        native = self.template.copy()
        native.row_vectors = address(dst)
        native.row_stride, native.row_head_stride = dst.stride(0), dst.stride(1)
        native.col_vectors = address(src)
        native.col_stride, native.col_head_stride = src.stride(0), src.stride(1)
        native.out = out.data_ptr()
        extension.sddmm(native, self.csr)
        return out


def _by_heads(x: Tensor) -> Tensor:
    """Return ``x``, [N, H, F], with the columns of each head contiguous."""
    return x if x.stride(2) == 1 or x.size(2) == 1 else x.contiguous()
