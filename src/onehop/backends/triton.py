"""The Triton kernels on GPUs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels import torch_csr
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.kernels.triton import availability
from onehop.kernels.triton.blocks import WINDOW, Blocks, blocks_of
from onehop.kernels.triton.work import Work, work_of
from onehop.plans import gpu_tuned
from onehop.plans.entry import Tuned
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_attention import default_attention_plan
from onehop.plans.triton_default import default_triton_plan

# What the attention of each rule is called where plans are tuned.
_ATTENTIONS = {"gat": "gat", "gatv2": "gatv2", "dot": "attention"}
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class TritonBackend:
    """Programs over work items of a graph, without atomics: the same bits in every run of one plan.

    Args:
        plan: Used for every call; None means the tuned plan where there is one, else the default.
    """

    name = "triton"

    def __init__(self, plan: TritonPlan | None = None) -> None:
        self._plan = plan

    def describe(self) -> str:
        """Triton's version and the GPUs, or why there is nothing to run on."""
        reason = availability.missing()
        if reason is not None:
            return reason
        if availability.interpreted():
            return f"triton {availability.version()}, interpreted on the CPU: slow, for tests"
        devices = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
        return f"triton {availability.version()} on {', '.join(devices)}"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """It runs on tensors of a GPU, of the four float types."""
        reason = availability.refuses(device)
        if reason is None and dtype not in FLOATS:
            return f"computes in float32, float64, bfloat16 and float16, not in {dtype}"
        return reason

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> TritonPlan:
        """The plan of a sum or mean on the current device."""
        return self.plan_for(graph, "sum", transposed, width, 1, dtype, availability.current())

    def plan_for(
        self,
        graph: Graph,
        operation: str,
        transposed: bool,
        width: int,
        heads: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> TritonPlan:
        """The plan of an operation (one of :data:`onehop.plans.cases.GPU_OPERATIONS`).

        ``width`` counts the columns of all heads.
        """
        if self._plan is not None:
            return self._plan
        found = self.tuned_for(graph, operation, transposed, width, heads, dtype, device)
        if found is not None:
            return found[0]
        return self.default_for(graph, operation, transposed, width, heads, dtype)

    @staticmethod
    def default_for(
        graph: Graph, operation: str, transposed: bool, width: int, heads: int, dtype: torch.dtype
    ) -> TritonPlan:
        """The plan of an operation where nothing was tuned."""
        if operation.removesuffix("_grad") in _ATTENTIONS.values():
            return default_attention_plan(heads, width // heads, dtype.itemsize, False)
        rows = graph.num_src if transposed else graph.num_dst
        return default_triton_plan(width, dtype.itemsize, rows, graph.num_edges)

    def tuned_for(
        self,
        graph: Graph,
        operation: str,
        transposed: bool,
        width: int,
        heads: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> tuple[TritonPlan, Tuned[TritonPlan]] | None:
        """The tuned plan of an operation and where it comes from; None if there is none, or one is given."""
        if self._plan is not None:
            return None
        machine = availability.machine(device)
        return gpu_tuned.find(graph, operation, transposed, width, heads, dtype, machine)

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
        if mean:
            inverse = _inverse_in_degrees(graph, x)
            if transposed:
                src_scale = inverse if src_scale is None else inverse * src_scale
            else:
                dst_scale = inverse if dst_scale is None else inverse * dst_scale
        plan = self._plan_of("sum", graph, transposed, x)
        if plan.variant == "torch_csr" and torch_csr.applies(x, weight, widen):
            return torch_csr.aggregate(graph, transposed, x, weight, src_scale, dst_scale)
        if plan.variant == "blocks":
            from onehop.kernels.triton import blocks_aggregate

            if blocks_aggregate.applies(x, weight):
                blocks = _blocks(graph, transposed, x, plan)
                return blocks_aggregate.aggregate(blocks, plan, x, weight, src_scale, dst_scale, widen)
        from onehop.kernels.triton.aggregate import aggregate

        work = _work(graph, transposed, x, plan)
        return aggregate(work, plan, x, weight, src_scale, dst_scale, widen)

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
        from onehop.kernels.triton.extremum import extremum

        plan = self._plan_of("extremum", graph, False, x)
        work = _work(graph, False, x, plan)
        out, ties = extremum(work, plan, x, weight, reduce == "max", widen, with_ties, adds)
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
        from onehop.kernels.triton.extremum_grad import extremum_grad_source, extremum_grad_weight

        share = (grad / (ties + (extremum == 0))).contiguous()
        grad_x = grad_weight = share.new_empty(0)
        if for_x:
            plan = self._plan_of("extremum_grad", graph, True, x)
            work = _work(graph, True, x, plan)
            grad_x = extremum_grad_source(work, plan, x, weight, extremum, share, adds)
        if for_weight and weight is not None:
            plan = self._plan_of("extremum_grad", graph, False, x)
            work = _work(graph, False, x, plan)
            grad_weight = extremum_grad_weight(work, plan, x, weight, extremum, share, adds)
        return grad_x, grad_weight

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """[E, H]: softmax over every destination's edges."""
        from onehop.kernels.triton.edge_softmax import edge_softmax

        plan = self._plan_of("edge_softmax", graph, False, scores)
        return edge_softmax(_work(graph, False, scores, plan), plan, scores)

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """[E, H]: the gradient to the scores."""
        from onehop.kernels.triton.edge_softmax import edge_softmax_grad

        plan = self._plan_of("edge_softmax", graph, False, softmax)
        return edge_softmax_grad(_work(graph, False, softmax, plan), plan, softmax, grad)

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head."""
        from onehop.kernels.triton.sddmm import sddmm

        plan = self._plan_of("sddmm", graph, False, src)
        scale = _inverse_in_degrees(graph, src) if mean else None
        return sddmm(_work(graph, False, src, plan), plan, dst, src, scale, widen)

    def fusedmm(self, graph: Graph, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
        """[num_dst, F]: edges are weighed in one pass and added up in another."""
        from onehop.kernels.triton.sddmm import sddmm

        plan = self._plan_of("sddmm", graph, False, src)
        work = _work(graph, False, src, plan)
        ends = dst.unsqueeze(1), src.unsqueeze(1)
        scores = factor * sddmm(work, plan, *ends, None, True, distance=rule == "tdist").squeeze(1)
        if rule != "tdist":
            weight = scores.sigmoid() if rule == "sigmoid" else scores
            return self.aggregate(graph, False, src, weight, None, None, False, False)
        weight = (1 + scores).reciprocal()
        ones = weight.new_ones(graph.num_src, 1)
        total = self.aggregate(graph, False, ones, weight, None, None, False, True)
        summed = self.aggregate(graph, False, src, weight, None, None, False, True)
        return (total * dst - summed).to(src.dtype)

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Attention over each destination's edges."""
        from onehop.kernels.triton.attention import attend

        plan = self._attention_plan(graph, operands, "")
        if plan.variant == "blocks" and not with_weights:
            from onehop.kernels.triton import blocks_attention

            if blocks_attention.applies(operands):
                return blocks_attention.attend(_blocks(graph, False, operands.value, plan), plan, operands)
        return attend(_work(graph, False, operands.value, plan), plan, operands, with_weights)

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
        from onehop.kernels.triton.attention import attend_grad

        plan = self._attention_plan(graph, operands, "_grad")
        if plan.variant == "blocks" and grad_weights is None:
            from onehop.kernels.triton import blocks_attention

            if blocks_attention.applies(operands):
                blocks, turned = (_blocks(graph, turn, operands.value, plan) for turn in (False, True))
                return blocks_attention.attend_grad(
                    blocks, turned, plan, operands, out, softmax, grad, wanted
                )
        work, transposed = (_work(graph, turned, operands.value, plan) for turned in (False, True))
        return attend_grad(
            work, transposed, plan, operands, out, softmax, weights, grad, grad_weights, wanted
        )

    def _plan_of(self, operation: str, graph: Graph, transposed: bool, x: Tensor) -> TritonPlan:
        """The plan for rows [N, F] or [N, H, D]."""
        heads = x.size(1) if x.dim() == 3 else 1
        return self.plan_for(graph, operation, transposed, x.shape[1:].numel(), heads, x.dtype, x.device)

    def _attention_plan(self, graph: Graph, operands: AttentionOperands, direction: str) -> TritonPlan:
        value = operands.value
        _, heads, width = value.shape
        if operands.rule != "gat":
            width = max(width, operands.query.size(2))
        if self._plan is None and operands.edge is not None:
            # Edge features take registers too: what was tuned without them does not suit.
            return default_attention_plan(heads, width, value.dtype.itemsize, True)
        operation = _ATTENTIONS[operands.rule] + direction
        return self.plan_for(graph, operation, False, heads * width, heads, value.dtype, value.device)


def _work(graph: Graph, transposed: bool, x: Tensor, plan: TritonPlan) -> Work:
    return work_of(graph, transposed, x.device, plan.split_edges, plan.short_edges, plan.ordering)


def _blocks(graph: Graph, transposed: bool, x: Tensor, plan: TritonPlan) -> Blocks:
    return blocks_of(graph, transposed, x.device, WINDOW * plan.split_edges)


def _inverse_in_degrees(graph: Graph, x: Tensor) -> Tensor:
    """[num_dst], of the accumulator's dtype, on the device of x; kept with the graph."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    key = ("inverse in-degrees", x.device, dtype)
    found = graph.derived.get(key)
    if found is None:
        found = graph.derived[key] = graph.inverse_in_degrees(dtype).to(x.device)
    return found
