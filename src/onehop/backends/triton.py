"""The Triton kernels on GPUs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.calls import (
    OPERATORS,
    SCORES,
    Aggregate,
    ArgExtremum,
    ArgExtremumGrad,
    Attention,
    AttentionGrad,
    EdgeSoftmax,
    EdgeSoftmaxGrad,
    Extremum,
    ExtremumGrad,
    Fusedmm,
    Sddmm,
    accumulator,
    on,
)
from onehop.graph import Graph
from onehop.graph.streams import KeptTensor
from onehop.kernels import torch_csr
from onehop.kernels.triton import availability
from onehop.kernels.triton.work import Work, work_of
from onehop.plans import gpu_tuned
from onehop.plans.table import Found
from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import default_attention_plan, default_triton_plan

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class TritonBackend:
    """Programs over work items of a graph, without atomics; results of a plan are bitwise reproducible.

    Args:
        plan: The plan for every call; None means the tuned plan if there is one, else the default plan.
    """

    name = "triton"

    @property
    def operators(self) -> frozenset[type]:
        """The types of calls for which :mod:`onehop.kernels.triton` has kernels."""
        return frozenset(_RUNS)

    def __init__(self, plan: TritonPlan | None = None) -> None:
        self._plan = plan

    def describe(self) -> str:
        """Return Triton's version and the GPUs, or why the backend cannot run here."""
        reason = availability.missing()
        if reason is not None:
            return reason
        if availability.interpreted():
            return f"triton {availability.version()}, interpreted on the CPU: slow, for tests"
        devices = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
        return f"triton {availability.version()} on {', '.join(devices)}"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return why the tensors are refused; the backend runs on GPU tensors of the four float types."""
        reason = availability.refuses(device)
        if reason is None and dtype not in FLOATS:
            return f"computes in float32, float64, bfloat16 and float16, not in {dtype}"
        return reason

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> TritonPlan:
        """Return the plan of a sum or mean on the current device."""
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
        """Return the plan of an operation (one of :data:`onehop.plans.cases.GPU_OPERATIONS`).

        ``width`` counts the columns of all heads.
        """
        if self._plan is not None:
            return self._plan
        found = self.tuned_for(graph, operation, transposed, width, heads, dtype, device)
        if found is not None:
            return found.plan
        return self.default_for(graph, operation, transposed, width, heads, dtype)

    @staticmethod
    def default_for(
        graph: Graph, operation: str, transposed: bool, width: int, heads: int, dtype: torch.dtype
    ) -> TritonPlan:
        """Return the plan of an operation for which nothing was tuned."""
        if operation.removesuffix("_grad") in SCORES:
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
    ) -> Found[TritonPlan] | None:
        """Return the tuned plan of an operation; None if there is none, or if the backend's plan is given."""
        if self._plan is not None:
            return None
        machine = availability.machine(device)
        return gpu_tuned.find(graph, operation, transposed, width, heads, dtype, machine)

    def run(self, graph: Graph, call: Any) -> Any:
        """Run a call with kernels that are imported when they are first needed.

        Autocast is disabled, because it would change the dtypes of sums and of torch's sparse products.
        """
        if torch._C._is_any_autocast_enabled():
            with torch._C._DisableAutocast():
                return _RUNS[type(call)](self, graph, call)
        return _RUNS[type(call)](self, graph, call)

    def _aggregate(self, graph: Graph, call: Aggregate) -> Tensor:
        if call.mean:
            call = _with_inverse_in_degrees(graph, call)
        plan = self._plan_of("sum", graph, call.transposed, call.x)
        if plan.variant == "torch_csr" and torch_csr.applies(call):
            return torch_csr.aggregate(graph, call)
        from onehop.kernels.triton.aggregate import aggregate

        return aggregate(_work(graph, call.transposed, call.x, plan), plan, call)

    def _extremum(self, graph: Graph, call: Extremum) -> tuple[Tensor, Tensor]:
        from onehop.kernels.triton.extremum import extremum
        from onehop.kernels.triton.positions import row_begins

        begins = row_begins(graph, call.x.device) if call.with_ties else None
        out, ties = extremum(*self._planned("extremum", graph, False, call.x), call, begins)
        return out, out.new_empty(0) if ties is None else ties

    def _extremum_grad(self, graph: Graph, grad: ExtremumGrad) -> tuple[Tensor, Tensor]:
        """Find edges by their positions in rows; two bytes per edge are kept for this."""
        from onehop.kernels.triton import extremum_grad as kernels
        from onehop.kernels.triton.positions import edge_marks

        x, weight = grad.call.x, grad.call.weight
        for_x, for_weight = grad.wanted
        shares = kernels.extremum_shares(grad)
        grad_x = grad_weight = shares.share.new_empty(0)
        if for_x:
            work, plan = self._planned("extremum_grad", graph, True, x)
            grad_x = kernels.extremum_grad_source(work, plan, grad, shares, edge_marks(graph, x.device))
        if for_weight and weight is not None:
            work, plan = self._planned("extremum_grad", graph, False, x)
            grad_weight = kernels.extremum_grad_weight(work, plan, grad, weight, shares.share)
        return grad_x, grad_weight

    def _arg_extremum(self, graph: Graph, call: ArgExtremum) -> tuple[Tensor, Tensor]:
        from onehop.kernels.triton.arg_extremum import arg_extremum

        return arg_extremum(*self._planned("extremum", graph, False, call.x), call)

    def _arg_extremum_grad(self, graph: Graph, grad: ArgExtremumGrad) -> tuple[Tensor, Tensor]:
        """Find the winners' edges by their positions; four bytes per edge are kept for this."""
        from onehop.kernels.triton import arg_extremum_grad as kernels
        from onehop.kernels.triton.positions import edge_places

        x, weight = grad.call.x, grad.call.weight
        for_x, for_weight = grad.wanted
        grad_x = grad_weight = x.new_empty(0)
        if for_x:
            work, plan = self._planned("extremum_grad", graph, True, x)
            grad_x = kernels.arg_extremum_grad_source(work, plan, grad, edge_places(graph, x.device))
        if for_weight and weight is not None:
            work, plan = self._planned("extremum_grad", graph, False, x)
            grad_weight = kernels.arg_extremum_grad_weight(work, plan, grad, weight)
        return grad_x, grad_weight

    def _edge_softmax(self, graph: Graph, call: EdgeSoftmax) -> Tensor:
        from onehop.kernels.triton.edge_softmax import edge_softmax

        return edge_softmax(*self._planned("edge_softmax", graph, False, call.scores), call)

    def _edge_softmax_grad(self, graph: Graph, call: EdgeSoftmaxGrad) -> Tensor:
        from onehop.kernels.triton.edge_softmax import edge_softmax_grad

        return edge_softmax_grad(*self._planned("edge_softmax", graph, False, call.softmax), call)

    def _sddmm(self, graph: Graph, call: Sddmm) -> Tensor:
        from onehop.kernels.triton.sddmm import sddmm

        scale = _inverse_in_degrees(graph, call.src) if call.mean else None
        return sddmm(*self._planned("sddmm", graph, False, call.src), call, scale)

    def _fusedmm(self, graph: Graph, call: Fusedmm) -> Tensor:
        """Weigh the edges in one pass, and add them up in another."""
        from onehop.kernels.triton.sddmm import sddmm

        dst, src = call.dst, call.src
        products = on(graph, Sddmm, dst=dst.unsqueeze(1), src=src.unsqueeze(1), widen=True)
        planned = self._planned("sddmm", graph, False, src)
        scores = call.factor * sddmm(*planned, products, None, call.rule == "tdist").squeeze(1)
        if call.rule != "tdist":
            weight = scores.sigmoid() if call.rule == "sigmoid" else scores
            return self._aggregate(graph, on(graph, Aggregate, x=src, weight=weight))
        weight = (1 + scores).reciprocal()
        ones = weight.new_ones(graph.num_src, 1)
        total, summed = (
            self._aggregate(graph, on(graph, Aggregate, x=x, weight=weight, widen=True)) for x in (ones, src)
        )
        return (total * dst - summed).to(src.dtype)

    def _attention(self, graph: Graph, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        from onehop.kernels.triton.attention import attend

        plan = self._attention_plan(graph, call, "")
        return attend(_work(graph, False, call.value, plan), plan, call)

    def _attention_grad(self, graph: Graph, grad: AttentionGrad) -> tuple[Tensor, ...]:
        """Run two sweeps that compute scores and weights again, so that nothing is kept per edge."""
        from onehop.kernels.triton.attention import attend_grad

        value = grad.call.value
        plan = self._attention_plan(graph, grad.call, "_grad")
        work, transposed = (_work(graph, turned, value, plan) for turned in (False, True))
        found = attend_grad(work, transposed, plan, grad)
        # An empty tensor means that the gradient is not requested.
        return tuple(value.new_empty(0) if each is None else each for each in found)

    def _plan_of(self, operation: str, graph: Graph, transposed: bool, x: Tensor) -> TritonPlan:
        """Return the plan for rows [N, F] or [N, H, D]."""
        heads = x.size(1) if x.dim() == 3 else 1
        return self.plan_for(graph, operation, transposed, x.shape[1:].numel(), heads, x.dtype, x.device)

    def _planned(self, operation: str, graph: Graph, transposed: bool, x: Tensor) -> tuple[Work, TritonPlan]:
        """Return the graph's work items under the plan for rows [N, F] or [N, H, D], and the plan."""
        plan = self._plan_of(operation, graph, transposed, x)
        return _work(graph, transposed, x, plan), plan

    def _attention_plan(self, graph: Graph, call: Attention, direction: str) -> TritonPlan:
        value = call.value
        _, heads, width = value.shape
        if call.rule != "gat":
            width = max(width, call.query.size(2))
        if self._plan is None and call.edge is not None:
            # Edge features take registers too, so plans tuned without them do not suit.
            return default_attention_plan(heads, width, value.dtype.itemsize, True)
        operation = OPERATORS[call.rule] + direction
        return self.plan_for(graph, operation, False, heads * width, heads, value.dtype, value.device)


_RUNS: dict[type, Callable[[TritonBackend, Graph, Any], Any]] = {
    Aggregate: TritonBackend._aggregate,
    ArgExtremum: TritonBackend._arg_extremum,
    ArgExtremumGrad: TritonBackend._arg_extremum_grad,
    Attention: TritonBackend._attention,
    AttentionGrad: TritonBackend._attention_grad,
    EdgeSoftmax: TritonBackend._edge_softmax,
    EdgeSoftmaxGrad: TritonBackend._edge_softmax_grad,
    Extremum: TritonBackend._extremum,
    ExtremumGrad: TritonBackend._extremum_grad,
    Fusedmm: TritonBackend._fusedmm,
    Sddmm: TritonBackend._sddmm,
}


def _with_inverse_in_degrees(graph: Graph, call: Aggregate) -> Aggregate:
    """Express the mean as a sum whose division is part of the destinations' scale."""
    inverse = _inverse_in_degrees(graph, call.x)
    if call.transposed:
        return call._replace(src_scale=inverse if call.src_scale is None else inverse * call.src_scale)
    return call._replace(dst_scale=inverse if call.dst_scale is None else inverse * call.dst_scale)


def _work(graph: Graph, transposed: bool, x: Tensor, plan: TritonPlan) -> Work:
    return work_of(graph, transposed, x.device, plan.split_edges, plan.short_edges, plan.ordering)


def _inverse_in_degrees(graph: Graph, x: Tensor) -> Tensor:
    """Return [num_dst], in the accumulator's dtype, on the device of x; it is cached with the graph."""
    dtype = accumulator(x.dtype)
    key = ("inverse in-degrees", x.device, dtype)
    found: KeptTensor | None = graph.derived.get(key)
    if found is None:
        numbers = graph.on(x.device).rowptr.diff().clamp_(min=1).to(dtype).reciprocal_()
        found = KeptTensor.of(numbers)
        graph.keep(key, found, x.device)
    return found.read()
