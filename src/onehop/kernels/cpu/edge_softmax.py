"""Softmax over the edges of every row, and its gradient, on the CPU."""

from typing import Any

from torch import Tensor

from onehop.calls import EdgeSoftmax, EdgeSoftmaxGrad
from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, thread_count
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import DTYPE_CODES, empty, extension
from onehop.plans import CpuPlan


class PreparedEdgeSoftmax:
    """Softmax over every row's edges, computed in the accumulator's dtype."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: EdgeSoftmax) -> None:
        self.csr = graph.csr
        self.template = _template(plan, call.scores)

    @staticmethod
    def key(call: EdgeSoftmax) -> tuple[Any, ...]:
        """The heads and the dtype."""
        return EdgeSoftmax, call.scores.shape[1], call.scores.dtype

    @staticmethod
    def case(call: EdgeSoftmax) -> PlanKey:
        """The heads decide."""
        return PlanKey("edge_softmax", False, call.scores.size(1), call.scores.dtype)

    def run(self, call: EdgeSoftmax) -> Tensor:
        """[E, H]."""
        scores = call.scores.contiguous()
        out = empty(scores.shape, scores.dtype)
        if self.template.heads:
            native = self.template.copy()
            native.scores, native.out = address(scores), out.data_ptr()
            extension.edge_softmax(native, self.csr)
        return out


class PreparedEdgeSoftmaxGrad:
    """The gradient to the scores: ``a * (g - sum of a * g over the row)``."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: EdgeSoftmaxGrad) -> None:
        self.csr = graph.csr
        self.template = _template(plan, call.softmax)

    @staticmethod
    def key(call: EdgeSoftmaxGrad) -> tuple[Any, ...]:
        """The heads and the dtype."""
        return EdgeSoftmaxGrad, call.softmax.shape[1], call.softmax.dtype

    @staticmethod
    def case(call: EdgeSoftmaxGrad) -> PlanKey:
        """The heads decide."""
        return PlanKey("edge_softmax", False, call.softmax.size(1), call.softmax.dtype)

    def run(self, call: EdgeSoftmaxGrad) -> Tensor:
        """[E, H]."""
        softmax, grad = call.softmax.contiguous(), call.grad.contiguous()
        out = empty(softmax.shape, softmax.dtype)
        if self.template.heads:
            native = self.template.copy()
            native.scores, native.grad, native.out = address(softmax), address(grad), out.data_ptr()
            extension.edge_softmax_grad(native, self.csr)
        return out


def _template(plan: CpuPlan, like: Tensor) -> extension.EdgeSoftmaxCall:
    template = extension.EdgeSoftmaxCall()
    template.dtype = DTYPE_CODES[like.dtype]
    template.threads = thread_count(plan)
    template.edges_per_item = plan.edges_per_item
    template.heads = like.size(1)
    return template
