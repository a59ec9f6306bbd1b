"""A simulated machine as a backend: sums and means in both directions; max, min and attention forward."""

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
    """Aggregates on a machine; a gradient of a sum runs on the reversed graph, which is a normal graph.

    The host computes what these machines do not have: gradients of edge weights and of max, min and
    attention, and the counts of ties and the attention weights that these gradients need. The features may be
    on any device; they are passed to and from the machine through the host's memory.

    Args:
        name: The backend's name for the argument ``backend=``.
        make: Creates the machine when it is first needed.
        ledger: Where runs are recorded; None means nowhere.
        layer: The label of the layer for which the backend runs, for the ledger.
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
        """The machine, which is created on first use."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    @property
    def operators(self) -> frozenset[type]:
        """The types of calls that the backend runs: all machines have sums, some have more."""
        found = frozenset({Aggregate, Sddmm})
        if isinstance(self.machine, OperatorMachine):
            found |= {Attention, AttentionGrad, Extremum, ExtremumGrad}
        return found

    def on_behalf_of(self, layer: str) -> "MachineBackend":
        """Return this backend for a layer, under whose label runs are recorded."""
        copy = MachineBackend(self.name, self._make, self.ledger, layer)
        copy._made, copy._reversed = self._made, self._reversed
        return copy

    def describe(self) -> str:
        """Return the machine's description."""
        return f"{self.machine.describe()}; only by name"

    def refuse(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return why the machine refuses the dtype, or None; tensors on any device are accepted."""
        return self.machine.refuse(dtype)

    def plan_of_sum(self, graph: Graph, transposed: bool, width: int, dtype: torch.dtype) -> Any:
        """Return the machine's name, because the machine chooses its plan when it runs."""
        return self.machine.name

    def run(self, graph: Graph, call: Any) -> Any:
        """Run a sum, mean, max, min or attention on the machine; gradients except a sum's run on the host."""
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
        # The comparisons are exact, so the host's ties are also the ties of the machine's result.
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
        # Cached, because a machine keeps its plans with the graph object.
        found = self._reversed.get(graph)
        if found is None:
            found = self._reversed[graph] = graph.transpose()
        return found


def _refused(name: str, call: Any, reason: str) -> BackendError:
    return BackendError(
        f"backend: {name} {reason}, so that it does not run this {name_of(type(call))}; omit backend."
    )


def _on_host(call: Any) -> Any:
    """Return a call with all its tensors, including those of a nested call, in the host's memory."""
    moved = {}
    for name, each in call._asdict().items():
        if isinstance(each, Tensor):
            moved[name] = each.detach().cpu()
        elif isinstance(each, Attention | Extremum):
            moved[name] = _on_host(each)
    return call._replace(**moved)


def _device_of(call: Any) -> torch.device:
    """Return the device of the first tensor of a call."""
    first = call[0]
    return first.device if isinstance(first, Tensor) else _device_of(first)
