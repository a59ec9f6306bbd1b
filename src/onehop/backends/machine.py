"""A simulated machine as a backend: sums and means run on it, both ways; gradients to weights on the host."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.calls import Aggregate, Sddmm, accumulator
from onehop.graph import Graph
from onehop.machines.base import Machine
from onehop.machines.ledger import Ledger

_HOST = CpuBackend()


class MachineBackend:
    """Aggregates on a machine: the reversed graph, which a gradient needs, is a graph like any other.

    Gradients to edge weights are dot products over edges, which such machines do not have: the host takes
    them. The features may be on any device; the machine gets and returns them through the host's memory.

    Args:
        name: What ``backend=`` calls it.
        make: Makes the machine when it is first needed.
        ledger: Where runs are written down; None means nowhere.
        layer: The label of the layer on whose behalf it runs, for the ledger.
    """

    operators = frozenset({Aggregate, Sddmm})

    def __init__(
        self, name: str, make: Callable[[], Machine], ledger: Ledger | None = None, layer: str = ""
    ) -> None:
        self.name = name
        self.layer = layer
        self.ledger = ledger
        self._make = make
        self._made: list[Machine] = []
        self._reversed: weakref.WeakKeyDictionary[Graph, Graph] = weakref.WeakKeyDictionary()

    @property
    def machine(self) -> Machine:
        """The machine."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    def on_behalf_of(self, layer: str) -> "MachineBackend":
        """The same backend, which writes its runs down under the label of a layer."""
        copy = MachineBackend(self.name, self._make, self.ledger, layer)
        copy._made, copy._reversed = self._made, self._reversed
        return copy

    def describe(self) -> str:
        """The machine's description."""
        return f"{self.machine.describe()}; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Any device will do; the machine decides about the dtype."""
        return self.machine.refuse(dtype)

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """The machine plans when it runs; what it is."""
        return self.machine.name

    def run(self, graph: Graph, call: Any) -> Any:
        """A sum or mean on the machine; dot products of edges on the host."""
        if isinstance(call, Aggregate):
            return self._aggregate(graph, call)
        host = call._replace(dst=call.dst.cpu(), src=call.src.cpu())
        return _HOST.run(graph, host).to(call.src.device)

    def _aggregate(self, graph: Graph, call: Aggregate) -> Tensor:
        x, weight = call.x.detach().cpu(), None if call.weight is None else call.weight.detach().cpu()
        src_scale = None if call.src_scale is None else call.src_scale.detach().cpu()
        dst_scale = None if call.dst_scale is None else call.dst_scale.detach().cpu()
        acc = accumulator(x.dtype)
        if call.transposed and call.mean:
            inverse = graph.inverse_in_degrees(acc)
            src_scale = inverse if src_scale is None else inverse * src_scale
        run_on = self._turned(graph) if call.transposed else graph
        heads = 1 if weight is None or weight.dim() == 1 else weight.size(1)
        columns = [None] if weight is None else [weight] if weight.dim() == 1 else list(weight.unbind(1))
        outs = []
        for part, column in zip(x.tensor_split(heads, 1), columns, strict=True):
            out, report = self.machine.aggregate(
                run_on,
                part,
                weight=column,
                reduce="mean" if call.mean and not call.transposed else "sum",
                src_scale=src_scale,
                dst_scale=dst_scale,
            )
            outs.append(out)
            if self.ledger is not None:
                self.ledger.record(self.layer, call.transposed, report)
        joined = outs[0] if heads == 1 else torch.cat(outs, 1)
        return joined.to(call.x.device, acc if call.widen else x.dtype)

    def _turned(self, graph: Graph) -> Graph:
        # Kept, for a machine keeps what it planned with the graph object.
        found = self._reversed.get(graph)
        if found is None:
            found = self._reversed[graph] = graph.transpose()
        return found
