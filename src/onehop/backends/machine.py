"""A simulated machine as a backend: sums and means run on it, both ways; all else is the host's."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.errors import BackendError
from onehop.graph import Graph
from onehop.kernels.attention_operands import AttentionGrads, AttentionOperands
from onehop.machines.base import Machine
from onehop.machines.ledger import Ledger
from onehop.machines.report import Report

_HOST = CpuBackend()


class MachineBackend:
    """Aggregates on a machine: the graph turned round, which a gradient needs, is a graph like any other.

    Gradients to edge weights are dot products over edges, which such machines do not have: the host takes
    them. The features may be on any device; the machine gets and returns them through the host's memory.

    Args:
        name: What ``backend=`` calls it.
        make: Makes the machine when it is first needed.
        ledger: Where runs are written down; None means that only the last report is kept.
        layer: The label of the layer on whose behalf it runs, for the ledger.
    """

    def __init__(
        self, name: str, make: Callable[[], Machine], ledger: Ledger | None = None, layer: str = ""
    ) -> None:
        self.name = name
        self.layer = layer
        self.ledger = ledger
        self._make = make
        self._made: list[Machine] = []
        self._turned: weakref.WeakKeyDictionary[Graph, Graph] = weakref.WeakKeyDictionary()
        self._last: list[Report] = []

    @property
    def machine(self) -> Machine:
        """The machine."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    @property
    def last_report(self) -> Report | None:
        """The report of the last run; None before the first."""
        return self._last[0] if self._last else None

    def on_behalf_of(self, layer: str) -> "MachineBackend":
        """The same backend, which writes its runs down under the label of a layer."""
        copy = MachineBackend(self.name, self._make, self.ledger, layer)
        copy._made, copy._turned, copy._last = self._made, self._turned, self._last
        return copy

    def describe(self) -> str:
        """What the machine says of itself."""
        return f"{self.machine.describe()}; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Any device will do; the machine decides about the dtype."""
        return self.machine.refuse(dtype)

    def prepare(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """The machine plans when it runs; what it is."""
        return self.machine.name

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
        """Sum or mean over each row's edges, on the machine."""
        device, dtype = x.device, x.dtype
        run_on = graph
        if transposed:
            run_on = self._turn(graph)
            if mean:
                inverse = graph.inverse_in_degrees(_accumulator(dtype))
                src_scale = inverse if src_scale is None else inverse * src_scale.cpu()
        reduce = "mean" if mean and not transposed else "sum"
        heads = 1 if weight is None or weight.dim() == 1 else weight.size(1)
        columns = [None] if weight is None else [weight] if weight.dim() == 1 else list(weight.unbind(1))
        parts = x.detach().cpu().tensor_split(heads, 1) if heads > 1 else (x.detach().cpu(),)
        outs = [
            self._run(run_on, transposed, part, column, src_scale, dst_scale, reduce)
            for part, column in zip(parts, columns, strict=True)
        ]
        out = outs[0] if heads == 1 else torch.cat(outs, 1)
        return out.to(device, _accumulator(dtype) if widen else dtype)

    def _run(
        self,
        graph: Graph,
        backward: bool,
        x: Tensor,
        weight: Tensor | None,
        src_scale: Tensor | None,
        dst_scale: Tensor | None,
        reduce: str,
    ) -> Tensor:
        out, report = self.machine.aggregate(
            graph,
            x,
            weight=None if weight is None else weight.detach().cpu(),
            reduce=reduce,
            src_scale=None if src_scale is None else src_scale.detach().cpu(),
            dst_scale=None if dst_scale is None else dst_scale.detach().cpu(),
        )
        self._last[:] = [report]
        if self.ledger is not None:
            self.ledger.record(self.layer, backward, report)
        return out

    def _turn(self, graph: Graph) -> Graph:
        # Kept, for a machine keeps what it planned with the graph object.
        found = self._turned.get(graph)
        if found is None:
            found = self._turned[graph] = graph.transpose()
        return found

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
        """Raises: machines add."""
        raise self._cannot(f"{reduce} is")

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
        """Raises: machines add."""
        raise self._cannot("gradients of max and min are")

    def edge_softmax(self, graph: Graph, scores: Tensor) -> Tensor:
        """Raises: machines add."""
        raise self._cannot("edge softmax is")

    def edge_softmax_grad(self, graph: Graph, softmax: Tensor, grad: Tensor) -> Tensor:
        """Raises: machines add."""
        raise self._cannot("edge softmax is")

    def sddmm(self, graph: Graph, dst: Tensor, src: Tensor, mean: bool, widen: bool) -> Tensor:
        """[E, H]: a dot product for every edge and head, on the host: gradients to edge weights need it."""
        return _HOST.sddmm(graph, dst.cpu(), src.cpu(), mean, widen).to(src.device)

    def fusedmm(self, graph: Graph, dst: Tensor, src: Tensor, rule: str, factor: float) -> Tensor:
        """Raises: machines add."""
        raise self._cannot("weights from both ends of edges are")

    def attend(
        self, graph: Graph, operands: AttentionOperands, with_weights: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Raises: machines add."""
        raise self._cannot("attention is")

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
        """Raises: machines add."""
        raise self._cannot("attention is")

    def _cannot(self, what: str) -> BackendError:
        return BackendError(
            f"backend: {what} not among what {self.name} simulates, which is sum and mean of "
            "onehop.aggregate; leave backend away."
        )


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
