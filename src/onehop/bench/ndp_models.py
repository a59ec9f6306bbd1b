"""Whole models end to end: aggregation on the near-rank machine, all else timed on this host."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.graph import Graph
from onehop.machines.common.report import Report
from onehop.machines.ndp import Machine, NdpPlan


class TimedMachine:
    """A machine that puts down how long this host took to simulate it.

    Args:
        machine: The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.seconds = 0.0
        """Time spent in :meth:`aggregate`."""

    @property
    def name(self) -> str:
        """Of its configuration."""
        return self._machine.name

    def describe(self) -> str:
        """One line on what it is."""
        return self._machine.describe()

    def refuse(self, dtype: torch.dtype) -> str | None:
        """The reason why it cannot aggregate features of this dtype; None means it can."""
        return self._machine.refuse(dtype)

    def aggregate(
        self, graph: Graph, x: Tensor, plan: NdpPlan | None = None, **options: Any
    ) -> tuple[Tensor, Report]:
        """As the machine's own."""
        began = time.perf_counter()
        result = self._machine.aggregate(graph, x, plan, **options)
        self.seconds += time.perf_counter() - began
        return result


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """A forward pass.

    Attributes:
        host_ms: Combination, activation and all else but aggregation, measured on this host.
        machine_ms: Aggregation on the machine, re-tiling included.
        baseline_ms: Aggregation on a host with the machine's channels, as the machine's model has it.
        prior_ms: Aggregation on the best prior near-data machine.
    """

    host_ms: float
    machine_ms: float
    baseline_ms: float
    prior_ms: float

    @property
    def speedup_over_baseline(self) -> float:
        """With the host's part on either side."""
        return (self.host_ms + self.baseline_ms) / (self.host_ms + self.machine_ms)

    @property
    def speedup_over_prior(self) -> float:
        """With the host's part on either side."""
        return (self.host_ms + self.prior_ms) / (self.host_ms + self.machine_ms)


def end_to_end(machine: Machine, model: torch.nn.Module, *inputs: Any, rounds: int = 3) -> EndToEnd:
    """Runs a model's forward pass with its aggregations on a machine.

    What the host does meanwhile is the time of the pass less that of simulating; the median of the rounds.

    Args:
        machine: The machine.
        model: A PyG model whose layers :func:`onehop.patch` knows.
        *inputs: Of the model.
        rounds: Measurements, after one that is not counted.
    """
    timed, host = TimedMachine(machine), []
    with onehop.patch(machine=timed) as patch, torch.inference_mode():
        for _ in range(rounds + 1):
            machine.forget()
            patch.report.clear()
            timed.seconds = 0.0
            began = time.perf_counter()
            model(*inputs)
            host.append(time.perf_counter() - began - timed.seconds)
        figures = [entry.report.figures for entry in patch.report.entries]
        machine_ms = patch.report.total_ms
    prior_ms = sum(min(one["serial_ms"] for one in found["prior"].values()) for found in figures)
    return EndToEnd(
        1e3 * statistics.median(host[1:]),
        machine_ms,
        sum(found["baseline"]["time_ms"] for found in figures),
        prior_ms,
    )
