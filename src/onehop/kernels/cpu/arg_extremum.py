"""Max and min with the winner of every entry, and their gradient, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop.calls import ArgExtremum, ArgExtremumGrad, heads_of
from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, planned, rows
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan


class PreparedArgExtremum:
    """Max or min over each row's edges, and the edge from which each entry is taken."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: ArgExtremum) -> None:
        heads = heads_of(call.weight)
        self.csr = graph.csr
        self.template = planned(extension.ArgExtremumCall(), plan, call.x.dtype)
        self.template.minimum = call.reduce == "min"
        self.template.last = call.last
        self.template.heads, self.template.width = heads, call.x.size(1) // heads

    @staticmethod
    def key(call: ArgExtremum) -> tuple[Any, ...]:
        """Return the reduction, the width, the heads and the dtype."""
        return ArgExtremum, call.reduce, call.last, call.x.shape[1], heads_of(call.weight), call.x.dtype

    @staticmethod
    def case(call: ArgExtremum) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of a head."""
        return PlanKey("extremum", False, call.x.size(1) // heads_of(call.weight), call.x.dtype)

    def run(self, call: ArgExtremum) -> tuple[Tensor, Tensor]:
        """Run the call; return [rows, F], and the winners' positions in the order of ``csr.col``, int32."""
        x = rows(call.x)
        shape = (self.csr.rows, x.size(1))
        out = empty(shape, x.dtype)
        winner = empty(shape, torch.float32).view(torch.int32)  # the pool has only float dtypes
        if not self.template.width:
            return out, winner
        native = self.template.copy()
        native.x, native.x_stride = address(x), x.stride(0)
        native.weight, native.weight_stride, native.weight_head_stride = _edge_layout(call.weight)
        native.out, native.out_stride = out.data_ptr(), out.stride(0)
        native.winner, native.winner_stride = winner.data_ptr(), winner.stride(0)
        extension.arg_extremum(native, self.csr)
        return out, winner


class PreparedArgExtremumGrad:
    """The gradients of max and min, which go to the winners."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, grad: ArgExtremumGrad) -> None:
        heads = heads_of(grad.call.weight)
        self.csr = graph.csr
        self.template = planned(extension.ArgExtremumGradCall(), plan, grad.call.x.dtype)
        self.template.heads, self.template.width = heads, grad.call.x.size(1) // heads

    @staticmethod
    def key(grad: ArgExtremumGrad) -> tuple[Any, ...]:
        """Return the width, the heads and the dtype."""
        x, weight = grad.call.x, grad.call.weight
        return ArgExtremumGrad, x.shape[1], heads_of(weight), x.dtype

    @staticmethod
    def case(grad: ArgExtremumGrad) -> PlanKey:
        """Return the case of a call, which depends on the number of columns of a head."""
        x = grad.call.x
        return PlanKey("extremum_grad", False, x.size(1) // heads_of(grad.call.weight), x.dtype)

    def run(self, grad: ArgExtremumGrad) -> tuple[Tensor, Tensor]:
        """Run the call; return [num_src, F], and a tensor of the weight's shape; empty if not needed."""
        for_x, for_weight = grad.wanted
        x, weight, outer = rows(grad.call.x), grad.call.weight, rows(grad.grad)
        grad_x = grad_weight = x.new_empty(0)
        native = self.template.copy()
        native.grad, native.grad_stride = address(outer), outer.stride(0)
        native.winner, native.winner_stride = address(grad.winner), grad.winner.stride(0)
        native.x, native.x_stride = address(x), x.stride(0)
        native.weight, native.weight_stride, native.weight_head_stride = _edge_layout(weight)
        if for_x:
            grad_x = empty((self.csr.cols, x.size(1)), x.dtype).zero_()
            native.out, native.out_stride = grad_x.data_ptr(), x.size(1)
            native.out_head_stride = native.width
            if native.width:
                extension.arg_extremum_grad_source(native, self.csr)
        if for_weight and weight is not None:
            grad_weight = torch.zeros(weight.shape, dtype=weight.dtype, device="cpu")
            native.out, native.out_stride, native.out_head_stride = _edge_layout(grad_weight)
            if native.width:
                extension.arg_extremum_grad_weight(native, self.csr)
        return grad_x, grad_weight


def _edge_layout(of_edges: Tensor | None) -> tuple[int, int, int]:
    """Return the address of a tensor [E] or [E, H], and its strides between edges and between heads."""
    if of_edges is None:
        return 0, 0, 0
    return address(of_edges), of_edges.stride(0), of_edges.stride(1) if of_edges.dim() == 2 else 0
