"""Who else can run an operator on a GPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu import dgl_calls, turbo_gnn_calls
from benchmarks.gpu.operators import Inputs, Operator
from onehop import Graph
from onehop.bench.cases import Workload
from onehop.bench.peers.base import beta_warnings_ignored, import_reason
from onehop.bench.peers.pyg import sorted_edges
from onehop.bench.peers.sparse import csr_tensor
from onehop.calls import Aggregate, on
from onehop.kernels import torch_csr

Call = Callable[[Inputs], Tensor]
_OURS = "onehop"
_PROGRAMS = 64
_NOT_COMPILED = "it is measured on one graph of a GPU alone, since it takes long to compile"


class Peers:
    """All peers on one graph; what each needs is prepared at its first call.

    Args:
        edge_index: [2, E], int64, on the device.
        nodes: N.
        compiles: Whether ``torch.compile`` of gather and scatter takes part.
    """

    def __init__(self, edge_index: Tensor, nodes: int, compiles: bool = False) -> None:
        self.edge_index, self.nodes, self.compiles = edge_index, nodes, compiles
        self._workload = Workload("", edge_index.cpu(), nodes)
        self.graph = self._workload.graph
        self._graphs: dict[str, Any] = {}
        self._programs: dict[str, Call] = {}

    def calls(self, operator: Operator) -> dict[str, Call | str]:
        """By name: onehop first, then gather and scatter in torch, then who else has this operator.

        A sentence instead of a call says why a peer cannot be measured here.
        """
        found: dict[str, Call | str] = {
            _OURS: lambda inputs: operator.ours(self.graph, inputs),
            "gather-scatter": lambda inputs: operator.naive(self.edge_index, self.nodes, inputs),
            "torch-compile": self._compiled(operator) if self.compiles else _NOT_COMPILED,
        }
        if operator.name in ("sum", "mean", "max", "min"):
            reason = import_reason("torch_geometric")
            found["pyg-EdgeIndex"] = reason or self._edge_index_matmul(operator.name)
        if operator.name == "sum":
            found["torch-csr"] = self._torch_csr()
            found["torch-csr-kept"] = lambda inputs: _Kept.apply(inputs["x"], self.graph)  # type: ignore[no-untyped-call]
        for name, library in (("dgl", dgl_calls), ("turbo_gnn", turbo_gnn_calls)):
            if operator.name in library.OPERATORS:
                reason = library.missing()
                found[name] = reason or library.call_of(operator.name, self._graph_of(name, library))
        return found

    def _compiled(self, operator: Operator) -> Call:
        """Gather and scatter through ``torch.compile``, as one graph; compiled once for all widths."""
        if operator.name not in self._programs:
            # All operators share this code; each is compiled for every dtype, with gradients and without.
            torch._dynamo.config.recompile_limit = _PROGRAMS
            program = torch.compile(operator.naive, fullgraph=True, dynamic=True)
            self._programs[operator.name] = lambda inputs: program(self.edge_index, self.nodes, inputs)
        return self._programs[operator.name]

    def _graph_of(self, name: str, library: Any) -> Any:
        if name not in self._graphs:
            self._graphs[name] = library.graph_of(self.edge_index, self.nodes)
        return self._graphs[name]

    def _edge_index_matmul(self, reduce: str) -> Call:
        edges, _ = sorted_edges(self.edge_index, self.nodes)
        with beta_warnings_ignored():
            # Once, for what torch says once.
            edges.matmul(self.edge_index.new_ones(self.nodes, 1, dtype=torch.float32), transpose=True)
        return lambda inputs: edges.matmul(inputs["x"], reduce=reduce, transpose=True)

    def _torch_csr(self) -> Call:
        matrix = csr_tensor(self._workload, torch.int32, weighted=False).to(self.edge_index.device)
        of_dtype: dict[torch.dtype, Tensor] = {}

        def multiply(inputs: Inputs) -> Tensor:
            x = inputs["x"]
            if x.dtype not in of_dtype:
                of_dtype[x.dtype] = matrix.to(x.dtype)
            out: Tensor = torch.sparse.mm(of_dtype[x.dtype], x)
            return out

        return multiply


class _Kept(torch.autograd.Function):
    """The sum through matrices of either direction, as a plan's variant "torch_csr" has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return torch_csr.aggregate(graph, on(graph, Aggregate, x=x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch_csr.aggregate(ctx.graph, on(ctx.graph, Aggregate, x=grad, transposed=True)), None
