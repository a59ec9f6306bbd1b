"""The C++ kernels on the processor."""

from collections.abc import Sequence

import torch
from torch import Tensor

from onehop import native
from onehop.graph import Graph
from onehop.graph.reorder import ordered_csr
from onehop.kernels import cpu as kernels
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.plans import CpuPlan, tuned
from onehop.plans.default import default_plan

# Where sources have so many edges in the mean, scaling their rows once is cheaper than once for each edge.
# (Two cores, float32, widths 16 to 128: at 190 edges a source 1.04 to 1.38 times faster, at 14 0.36 to 0.95.)
_SCALED_FIRST_DEGREE = 64


class CpuBackend:
    """Register-blocked loops over compressed sparse rows, for the best instruction set there is.

    Args:
        plan: Used for every call; None means the tuned plan where there is one, else the default.
    """

    name = "cpu"

    def __init__(self, plan: CpuPlan | None = None) -> None:
        self._plan = plan

    def describe(self) -> str:
        """Instruction set and threads."""
        available = ", ".join(native.extension.available_isas())
        pool = (
            "torch's OpenMP threads"
            if native.extension.openmp_bound()
            else "one thread (torch's OpenMP not found)"
        )
        return (
            f"C++ kernels, {native.extension.selected_isa()} (of {available}), {native.threads()} of {pool}"
        )

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """It runs on CPU tensors of the four float types."""
        if device.type != "cpu":
            return f"runs on CPU tensors, not on {device.type}"
        if dtype not in native.DTYPE_CODES:
            return f"computes in float32, float64, bfloat16 and float16, not in {dtype}"
        return None

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> CpuPlan:
        """The plan of a sum or mean."""
        return self.plan_for(graph, "sum", transposed, width, dtype)

    def plan_for(
        self, graph: Graph, operation: str, transposed: bool, width: int, dtype: torch.dtype
    ) -> CpuPlan:
        """The plan of an operation (one of :data:`onehop.plans.cases.OPERATIONS`)."""
        if self._plan is not None:
            return self._plan
        found = tuned.find(graph, operation, transposed, width, dtype)
        if found is not None:
            return found[0]
        sources, rows = (graph.num_dst, graph.num_src) if transposed else (graph.num_src, graph.num_dst)
        return default_plan(sources, rows, graph.num_edges, width, dtype.itemsize)

    def aggregate(
        self,
        graph: Graph,
        transposed: bool,
        x: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        mean: bool,
        widen: bool,
    ) -> Tensor:
        """Sum or mean over each row's edges."""
        heads = weight.size(1) if weight is not None and weight.dim() == 2 else 1
        plan = self.plan_for(graph, "sum", transposed, x.shape[1] // heads, x.dtype)
        csr = ordered_csr(graph, plan.ordering, transposed)
        if mean and transposed:
            inverse = graph.inverse_in_degrees(torch.float64 if x.dtype == torch.float64 else torch.float32)
            src_scale = inverse if src_scale is None else inverse * src_scale
            mean = False
        dense = graph.num_edges >= _SCALED_FIRST_DEGREE * x.size(0)
        if dense and src_scale is not None and weight is None and src_scale.dtype == x.dtype:
            x, src_scale = x * src_scale[:, None], None
        weight, ordered = kernels.in_graph_order(csr, graph.number, transposed, plan.ordering, weight)
        if plan.storage == "bfloat16" and x.dtype == torch.float32:
            x, widen = x.bfloat16(), True
        return kernels.aggregate(csr, plan, x, weight, src_scale, dst_scale, mean, widen, ordered)

    def extremum(
        self,
        graph: Graph,
        x: Tensor,
        weight: Tensor | None,
        reduce: str,
        widen: bool,
        with_ties: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Max or min, and the number of edges that reach it."""
        plan = self.plan_for(graph, "extremum", False, x.size(1), x.dtype)
        csr = ordered_csr(graph, plan.ordering, False)
        weight, ordered = kernels.in_graph_order(csr, graph.number, False, plan.ordering, weight)
        out, ties = kernels.extremum(csr, plan, x, weight, reduce, widen, with_ties, ordered, adds)
        return out, out.new_empty(0) if ties is None else ties

    def extremum_grad(
        self,
        graph: Graph,
        grad: Tensor,
        x: Tensor,
        weight: Tensor | None,
        extremum: Tensor,
        ties: Tensor,
        for_x: bool,
        for_weight: bool,
        adds: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Compares every message with the extremum once more; nothing is kept for each edge."""
        share = (grad / (ties + (extremum == 0))).contiguous()
        plan = self.plan_for(graph, "extremum_grad", for_x, x.size(1), x.dtype)
        none = share.new_empty(0)
        grad_x = (
            kernels.extremum_grad_source(graph.transposed_csr, plan, x, weight, extremum, share, adds)
            if for_x
            else none
        )
        grad_weight = none
        if for_weight and weight is not None:
            grad_weight = kernels.extremum_grad_weight(graph.csr, plan, x, weight, extremum, share, adds)
        return grad_x, grad_weight

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """[E, H]: softmax over every destination's edges."""
        plan = self.plan_for(graph, "edge_softmax", False, scores.size(1), scores.dtype)
        return kernels.edge_softmax(graph.csr, plan, scores)

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """[E, H]: the gradient to the scores."""
        plan = self.plan_for(graph, "edge_softmax", False, softmax.size(1), softmax.dtype)
        return kernels.edge_softmax_grad(graph.csr, plan, softmax, grad)

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head."""
        if mean:
            dst = dst * graph.inverse_in_degrees(dst.dtype).view(-1, 1, 1)
        plan = self.plan_for(graph, "sddmm", False, src.size(2), src.dtype)
        return kernels.sddmm(graph.csr, plan, dst, src, widen)

    def fusedmm(self, graph: Graph, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
        """[num_dst, F]: sums over edges that are weighed by their ends; tuned as products of edges are."""
        plan = self.plan_for(graph, "sddmm", False, src.size(1), src.dtype)
        return kernels.fusedmm(graph.csr, plan, dst, src, rule, factor)

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over each destination's edges."""
        return kernels.attend(graph.csr, self._attention_plan(graph, operands), operands, with_weights)

    def attend_grad(
        self,
        graph: Graph,
        operands: AttentionOperands,
        out: Tensor,
        softmax: Tensor,
        weights: Tensor | None,
        grad: Tensor,
        grad_weights: Tensor | None,
        wanted: Sequence[bool],
    ) -> AttentionGrads:
        """Two sweeps that compute scores and weights once more; nothing is kept for each edge."""
        return kernels.attend_grad(
            graph.csr,
            graph.transposed_csr,
            self._attention_plan(graph, operands),
            operands,
            out,
            softmax,
            weights,
            grad,
            grad_weights,
            wanted,
        )

    def _attention_plan(self, graph: Graph, operands: AttentionOperands) -> CpuPlan:
        width = operands.heads * operands.value.size(2)
        return self.plan_for(graph, "attention", False, width, operands.value.dtype)
