"""Softmax over the edges of every row, and its gradient, on the CPU."""

from typing import Any

from torch import Tensor

from onehop.calls import EdgeSoftmax, EdgeSoftmaxGrad
from onehop.graph import Graph
from onehop.kernels.cpu.layout import address, planned
from onehop.kernels.cpu.prepared import PlanKey
from onehop.native import empty, extension
from onehop.plans import CpuPlan


class PreparedEdgeSoftmax:
    """Softmax over every row's edges, or its gradient, computed in the accumulator's dtype."""

    __slots__ = ("csr", "template")

    def __init__(self, graph: Graph, plan: CpuPlan, call: EdgeSoftmax | EdgeSoftmaxGrad) -> None:
        self.csr = graph.csr
        self.template = planned(extension.EdgeSoftmaxCall(), plan, call[0].dtype)
        self.template.heads = call[0].size(1)

    @staticmethod
    def key(call: EdgeSoftmax | EdgeSoftmaxGrad) -> tuple[Any, ...]:
        """Return the operator, the heads and the dtype."""
        return type(call), call[0].shape[1], call[0].dtype

    @staticmethod
    def case(call: EdgeSoftmax | EdgeSoftmaxGrad) -> PlanKey:
        """Return the case of a call, which depends on the number of heads."""
        return PlanKey("edge_softmax", False, call[0].size(1), call[0].dtype)

    def run(self, call: EdgeSoftmax | EdgeSoftmaxGrad) -> Tensor:
        """Run the call; return [E, H]."""
        scores = call[0].contiguous()
        out = empty(scores.shape, scores.dtype)
        if self.template.heads:
            native = self.template.copy()
            native.scores, native.out = address(scores), out.data_ptr()
            if isinstance(call, EdgeSoftmaxGrad):
                grad = call.grad.contiguous()
                native.grad = address(grad)
                extension.edge_softmax_grad(native, self.csr)
            else:
                extension.edge_softmax(native, self.csr)
        return out
