"""A simulated machine as a backend: sums and means both ways, max, min and attention forward."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.backends.cpu import CpuBackend
from onehop.calls import (
    Aggregate,
    Attention,
    AttentionGrad,
    Extremum,
    ExtremumGrad,
    Sddmm,
    accumulator,
    heads_of,
    name_of,
)
from onehop.errors import BackendError
from onehop.graph import Graph
from onehop.machines.base import AttentionSize, Machine, OperatorMachine
from onehop.machines.common.ledger import Ledger
from onehop.machines.common.report import Report

_HOST = CpuBackend()


class MachineBackend:
    """Aggregates on a machine: the reversed graph, which a gradient needs, is a graph like any other.

    Gradients to edge weights, and those of max, min and attention, are not what such machines have: the host
    takes them. So it does the counts of ties and the attention weights that they need. The
    features may be on any device; the machine gets and returns them through the host's memory.

    Args:
        name: What ``backend=`` calls it.
        make: Makes the machine when it is first needed.
        ledger: Where runs are written down; None means nowhere.
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
        self._reversed: weakref.WeakKeyDictionary[Graph, Graph] = weakref.WeakKeyDictionary()

    @property
    def machine(self) -> Machine:
        """The machine."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    @property
    def operators(self) -> frozenset[type]:
        """The kinds of calls that it runs: all machines have sums, some have more."""
        found = frozenset({Aggregate, Sddmm})
        if isinstance(self.machine, OperatorMachine):
            found |= {Attention, AttentionGrad, Extremum, ExtremumGrad}
        return found

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
        """A sum, mean, max, min or attention on the machine; gradients but those of sums on the host."""
        if isinstance(call, Aggregate):
            return self._aggregate(graph, call)
        host = _on_host(call)
        results: Tensor | tuple[Tensor, ...]
        if isinstance(host, Extremum):
            results = self._extremum(graph, host)
        elif isinstance(host, Attention):
            results = self._attention(graph, host)
        else:
            results = _HOST.run(graph, host)
        device = _device_of(call)
        return results.to(device) if isinstance(results, Tensor) else tuple(t.to(device) for t in results)

    def _extremum(self, graph: Graph, call: Extremum) -> tuple[Tensor, Tensor]:
        machine = self._with_operators()
        reason = machine.refuse_extremum(call.x.dtype)
        if reason is not None:
            raise _refused(self.name, call, reason)
        out, report = machine.extremum(graph, call)
        self._record(report)
        # The comparisons are exact, so that the host's ties are those of the machine's result.
        ties = _HOST.run(graph, call)[1] if call.with_ties else out.new_empty(0)
        return out.to(accumulator(out.dtype)) if call.widen else out, ties

    def _attention(self, graph: Graph, call: Attention) -> tuple[Tensor, Tensor, Tensor]:
        machine = self._with_operators()
        reason = machine.refuse_attention(graph, AttentionSize.of(call))
        if call.dropout:
            reason = "has no dropout of its own; give the factors as edge_mask"
        if reason is not None:
            raise _refused(self.name, call, reason)
        (out, softmax), report = machine.attention(graph, call)
        self._record(report)
        weights = _HOST.run(graph, call)[2] if call.with_weights else softmax.new_empty(0)
        return out, softmax, weights

    def _with_operators(self) -> OperatorMachine:
        assert isinstance(self.machine, OperatorMachine)
        return self.machine

    def _record(self, report: Report, backward: bool = False) -> None:
        if self.ledger is not None:
            self.ledger.record(self.layer, backward, report)

    def _aggregate(self, graph: Graph, call: Aggregate) -> Tensor:
        x, weight, src_scale, dst_scale = _on_host(call)[:4]
        acc = accumulator(x.dtype)
        if call.transposed and call.mean:
            inverse = graph.inverse_in_degrees(acc)
            src_scale = inverse if src_scale is None else inverse * src_scale
        run_on = self._turned(graph) if call.transposed else graph
        heads = heads_of(weight)
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
            self._record(report, call.transposed)
        joined = outs[0] if heads == 1 else torch.cat(outs, 1)
        return joined.to(call.x.device, acc if call.widen else x.dtype)

    def _turned(self, graph: Graph) -> Graph:
        # Kept, because a machine keeps what it planned with the graph object.
        found = self._reversed.get(graph)
        if found is None:
            found = self._reversed[graph] = graph.transpose()
        return found


def _refused(name: str, call: Any, reason: str) -> BackendError:
    return BackendError(
        f"backend: {name} {reason}, so that it does not run this {name_of(type(call))}; omit backend."
    )


def _on_host(call: Any) -> Any:
    """A call with every tensor in the host's memory; of a gradient's call, those of the call in it too."""
    moved = {}
    for name, each in call._asdict().items():
        if isinstance(each, Tensor):
            moved[name] = each.detach().cpu()
        elif isinstance(each, Attention | Extremum):
            moved[name] = _on_host(each)
    return call._replace(**moved)


def _device_of(call: Any) -> torch.device:
    """The device of the first tensor of a call."""
    first = call[0]
    return first.device if isinstance(first, Tensor) else _device_of(first)
