"""Whole models on a near-bank machine, with the combination on its host (Cooperative Acceleration).

The results are computed. Times are modelled, also for the host (:mod:`onehop.machines.pim.combination`).

The networks are the networks of the PyGim paper's repository: a linear layer to the hidden width; for each
layer the convolution, batch normalisation and ReLU; and a linear layer to the classes. All aggregations have
the hidden width, so one plan serves every layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleList, ReLU, Sequential

from onehop.errors import check_choice
from onehop.graph import Graph
from onehop.machines.pim import Machine, PimPlan, PimReport, combination
from onehop.machines.pim.combination import KINDS, combination_energy_nj
from onehop.machines.pim.numbers import INTEGERS
from onehop.ops.aggregate import Reduction, aggregate

Aggregate = Callable[[Tensor], Tensor]


class Network(Module):
    """A network whose aggregation is passed in by the caller.

    Args:
        kind: "gcn", "gin" or "sage" (with the mean).
        features: Number of input columns.
        hidden: Number of columns of every aggregation.
        classes: Number of output columns.
        layers: Number of convolutions.

    Raises:
        ArgumentError: ``kind`` is unknown.
    """

    def __init__(self, kind: str, features: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        check_choice("model", kind, KINDS)
        self.kind = kind
        self.begin = Linear(features, hidden)
        self.end = Linear(hidden, classes)
        self.norms = ModuleList(BatchNorm1d(hidden) for _ in range(layers))
        self.convs = ModuleList(self._conv(hidden) for _ in range(layers))
        self.others = ModuleList(Linear(hidden, hidden) for _ in range(layers if kind == "sage" else 0))

    def _conv(self, hidden: int) -> Module:
        if self.kind == "gin":
            return Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, hidden))
        return Linear(hidden, hidden)

    def forward(self, x: Tensor, aggregate: Aggregate) -> Tensor:
        """Map [N, features] to [N, classes]."""
        x = self.begin(x).relu()
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if self.kind == "gcn":
                x = aggregate(conv(x))
            elif self.kind == "gin":
                x = conv(x + aggregate(x))
            else:
                x = conv(aggregate(x)) + self.others[layer](x)
            x = norm(x).relu()
        out: Tensor = self.end(x)
        return out


@dataclass(frozen=True, slots=True)
class ModelRun:
    """Inference of a network on a machine.

    Attributes:
        host_ms: Time of the combination on the machine's host.
        host_mj: Energy of the host and the ranks during the combination.
        reports: Reports of the aggregations, one per layer.
        max_abs_error: Largest difference of the output from the network's output with exact sums.
        max_abs_output: Largest magnitude of the output.
    """

    host_ms: float
    host_mj: float
    reports: tuple[PimReport, ...]
    max_abs_error: float
    max_abs_output: float

    @property
    def total_ms(self) -> float:
        """Time of combination and aggregation, which follow one another as the layers do."""
        return self.host_ms + sum(report.total_ms for report in self.reports)

    @property
    def energy_mj(self) -> float:
        """Energy of combination and aggregations."""
        return self.host_mj + sum(report.energy_mj for report in self.reports)


def scales(graph: Graph) -> Tensor:
    """Return [N]: deg ** -1/2, GCN's normalisation without self loops; 0 for nodes without edges."""
    return graph.in_degrees.float().clamp_(min=1).rsqrt_() * (graph.in_degrees > 0)


def run(machine: Machine, graph: Graph, network: Network, x: Tensor, plan: PimPlan | None = None) -> ModelRun:
    """Run a network on x [N, features], aggregating on a machine; ``plan`` None means the machine's plan."""
    reports: list[PimReport] = []
    scale = scales(graph) if network.kind == "gcn" else None
    reduce: Reduction = "mean" if network.kind == "sage" else "sum"

    def on_machine(h: Tensor) -> Tensor:
        out, report = machine.aggregate(graph, h, plan, reduce=reduce, src_scale=scale, dst_scale=scale)
        reports.append(report)
        return out

    def exact(h: Tensor) -> Tensor:
        return aggregate(graph, h, reduce=reduce, src_scale=scale, dst_scale=scale)

    network.eval()
    with torch.inference_mode():
        out, expected = network(x, on_machine), network(x, exact)
    error, largest = (float(each.abs().max()) if each.numel() else 0.0 for each in (out - expected, expected))
    size = combination.Network(
        network.kind,
        graph.num_dst,
        network.begin.in_features,
        network.begin.out_features,
        network.end.out_features,
        len(network.convs),
        quantised=any(report.dtype in INTEGERS for report in reports),
    )
    host_ns, config = size.time_ns(machine.config), machine.config
    host_nj = combination_energy_nj(config.power, config.ranks, host_ns)
    return ModelRun(host_ns / 1e6, host_nj / 1e6, tuple(reports), error, largest)
