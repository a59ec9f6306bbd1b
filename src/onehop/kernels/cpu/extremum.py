"""Max and min, and their gradients, on the CPU."""

from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.calls import Extremum, ExtremumGrad, accumulator
from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.kernels.cpu.aggregate import aggregate_call
from onehop.kernels.cpu.layout import address, edge_stride, planned, rows
from onehop.kernels.cpu.ordered_weights import in_graph_order
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan

# Numbers of onehop::Reduce in csrc/include/onehop/kernels.hpp.
_REDUCE = {"max": 2, "min": 3}


class PreparedExtremum:
    """Max or min over each row's edges, and the number of edges that equal it."""

    __slots__ = ("acc", "csr", "keeps_weights", "number", "ordering", "out_dtype", "shape", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: Extremum) -> None:
        self.csr = ordered_csr(graph, plan.ordering, False)
        self.acc = accumulator(call.x.dtype)
        self.out_dtype = self.acc if call.widen else call.x.dtype
        self.shape = (self.csr.rows, call.x.size(1))
        self.keeps_weights = self.csr.edges >= thresholds.now.ordered_edges and self.csr.perm is not None
        self.number, self.ordering = graph.number, plan.ordering
        self.template = aggregate_call(plan, call.x.dtype)
        self.template.reduce = _REDUCE[call.reduce]
        self.template.out_is_acc = self.out_dtype is not call.x.dtype
        self.template.weight_adds = call.adds
        self.template.width = self.template.out_stride = call.x.size(1)

    @staticmethod
    def key(call: Extremum) -> tuple[Any, ...]:
        """Return the reduction, the width and the dtypes."""
        return Extremum, call.reduce, call.adds, call.widen, call.x.shape[1], call.x.dtype

    @staticmethod
    def case(call: Extremum) -> PlanKey:
        """Return the case of a call, which depends on the number of columns."""
        return PlanKey("extremum", False, call.x.size(1), call.x.dtype)

    def run(self, call: Extremum) -> tuple[Tensor, Tensor]:
        """Run the call; return the extrema, [rows, F], and the numbers of ties, [rows, F] or empty."""
        out = empty(self.shape, self.out_dtype)
        ties = empty(self.shape, self.acc) if call.with_ties else out.new_empty(0)
        if not self.template.width:
            return out, ties
        x, weight = rows(call.x), call.weight
        native = self.template.copy()
        native.x, native.x_stride = address(x), x.stride(0)
        if weight is not None:
            if self.keeps_weights:
                weight, native.weight_in_graph_order = in_graph_order(
                    self.csr, self.number, False, self.ordering, weight
                )
            native.weight, native.weight_stride = address(weight), weight.stride(0)
        native.out = out.data_ptr()
        if call.with_ties:
            native.ties = ties.data_ptr()
        extension.aggregate(native, self.csr)
        return out, ties


class PreparedExtremumGrad:
    """The gradients; messages are compared with the extremum again, and nothing is stored for edges."""

    __slots__ = ("acc", "csr", "template", "transposed")

    def __init__(self, graph: Graph, plan: CpuPlan, grad: ExtremumGrad) -> None:
        call = grad.call
        for_x, for_weight = grad.wanted[0], grad.wanted[1] and call.weight is not None
        self.acc = accumulator(call.x.dtype)
        self.csr = graph.csr if for_weight else None
        self.transposed = graph.transposed_csr if for_x else None
        self.template = planned(extension.ExtremumGradCall(), plan, call.x.dtype)
        self.template.extremum_is_acc = grad.extremum.dtype is not call.x.dtype
        self.template.width = call.x.size(1)
        self.template.weight_adds = call.adds

    @staticmethod
    def key(grad: ExtremumGrad) -> tuple[Any, ...]:
        """Return the width, the dtypes, and which gradients are needed."""
        x = grad.call.x
        weighed = grad.call.weight is not None
        return ExtremumGrad, *grad.wanted, weighed, grad.call.adds, x.shape[1], x.dtype, grad.extremum.dtype

    @staticmethod
    def case(grad: ExtremumGrad) -> PlanKey:
        """Return the case of a call, which depends on the number of columns."""
        return PlanKey("extremum_grad", grad.wanted[0], grad.call.x.size(1), grad.call.x.dtype)

    def run(self, grad: ExtremumGrad) -> tuple[Tensor, Tensor]:
        """Run the call; return the gradients, [num_src, F] and [E], each empty if not needed."""
        weight, x, extremum = grad.call.weight, rows(grad.call.x), rows(grad.extremum)
        share = (grad.grad / (grad.ties + (grad.extremum == 0))).contiguous()
        grad_x = grad_weight = share.new_empty(0)
        native = self.template.copy()
        native.x, native.x_stride = address(x), x.stride(0)
        native.extremum, native.extremum_stride = address(extremum), extremum.stride(0)
        native.share = address(share)
        native.weight, native.weight_stride = address(weight), edge_stride(weight)
        if self.transposed is not None:
            grad_x = empty((self.transposed.rows, x.size(1)), self.acc)
            if native.width:
                native.out = grad_x.data_ptr()
                extension.extremum_grad_source(native, self.transposed)
        if self.csr is not None:
            if native.width:
                grad_weight = empty((self.csr.edges,), self.acc)
                native.out = grad_weight.data_ptr()
                extension.extremum_grad_weight(native, self.csr)
            else:
                grad_weight = torch.zeros(self.csr.edges, dtype=self.acc, device="cpu")
        return grad_x, grad_weight
