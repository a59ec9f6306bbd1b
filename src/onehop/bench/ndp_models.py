"""The near-rank machine: checks of its results, and whole models end to end.

Results are also checked for features that do not fit into memory at once. For a whole model, everything
except aggregation is timed on this host.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import onehop
from onehop.graph import Graph
from onehop.machines.common.report import Report
from onehop.machines.ndp import Machine, NdpPlan, functional
from onehop.machines.ndp.mapping import Pods

# Number of columns that are in memory at once: 2.4 million nodes then take about 300 MB in float64.
_COLUMNS = 16
# Number of windows in a sample, and of targets in each window.
_WINDOWS, _TARGETS = 4, 128


class TimedMachine:
    """A machine that records how long this host took to simulate it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.seconds = 0.0
        """Time spent in :meth:`aggregate`."""

    @property
    def name(self) -> str:
        """Name of the machine's configuration."""
        return self._machine.name

    def describe(self) -> str:
        """Return one line that describes the machine."""
        return self._machine.describe()

    def refuse(self, dtype: torch.dtype) -> str | None:
        """Return why the machine cannot aggregate features of this dtype; None means that it can."""
        return self._machine.refuse(dtype)

    def aggregate(
        self, graph: Graph, x: Tensor, plan: NdpPlan | None = None, **options: Any
    ) -> tuple[Tensor, Report]:
        """Aggregate on the machine, and record the time."""
        began = time.perf_counter()
        result = self._machine.aggregate(graph, x, plan, **options)
        self.seconds += time.perf_counter() - began
        return result


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Times of a forward pass.

    Attributes:
        host_ms: Combination, activation and everything else except aggregation, measured on this host.
        machine_ms: Aggregation on the machine, including re-tiling.
        baseline_ms: Aggregation on a host with the machine's channels, in the machine's model.
        prior_ms: Aggregation on the best prior near-data machine.
    """

    host_ms: float
    machine_ms: float
    baseline_ms: float
    prior_ms: float

    @property
    def speedup_over_baseline(self) -> float:
        """Speedup over the baseline; both sides include the host's part."""
        return (self.host_ms + self.baseline_ms) / (self.host_ms + self.machine_ms)

    @property
    def speedup_over_prior(self) -> float:
        """Speedup over the best prior machine; both sides include the host's part."""
        return (self.host_ms + self.prior_ms) / (self.host_ms + self.machine_ms)


def end_to_end(machine: Machine, model: torch.nn.Module, *inputs: Any, rounds: int = 3) -> EndToEnd:
    """Run a model's forward pass with its aggregations on a machine.

    The host's time is the time of the pass minus the time of simulation; it is the median of the rounds.

    Args:
        machine: The machine.
        model: A PyG model whose layers :func:`onehop.patch` knows.
        *inputs: The model's inputs.
        rounds: Number of measurements, after one that is not counted.
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
    prior_ms = sum(min(one["serial_ms"] for one in values["prior"].values()) for values in figures)
    return EndToEnd(
        1e3 * statistics.median(host[1:]),
        machine_ms,
        sum(values["baseline"]["time_ms"] for values in figures),
        prior_ms,
    )


def output_errors(
    machine: Machine,
    graph: Graph,
    plan: NdpPlan,
    width: int,
    full: Sequence[str],
    sampled: Sequence[str],
    progress: Callable[[str, float], None] = lambda _what, _done: None,
) -> dict[str, float]:
    """Return the largest difference between the machine's result and onehop's own sum in float64.

    Features are standard normal; a few columns are drawn at a time.

    Args:
        machine: The machine.
        graph: The graph.
        plan: Gives the order of targets.
        width: Columns of the feature vectors.
        full: Mappings that are checked on all targets.
        sampled: Mappings that are checked on four windows of 128 targets and on the target with the most
            edges.
        progress: Called with the current step and the share that is done.
    """
    rows = _sample(graph)
    part = _rows_of(graph, rows)
    pods = {name: Pods.of(machine.config.topology, name) for name in (*full, *sampled)}
    work = {name: machine.workload(graph, plan, each) for name, each in pods.items()}
    errors = dict.fromkeys(pods, 0.0)
    for first in range(0, width, _COLUMNS):
        progress("checking results", first / width)
        columns = (first, min(first + _COLUMNS, width))
        x = torch.randn(
            graph.num_src, columns[1] - first, generator=torch.Generator().manual_seed(first), device="cpu"
        )
        wide = x.double()
        if full:
            expected = onehop.aggregate(graph, wide)
            for name in full:
                got = functional.aggregate(work[name], pods[name], x, columns=columns, width=width)
                errors[name] = max(errors[name], _difference(got, expected))
            del expected, got
        if sampled:
            expected = onehop.aggregate(part, wide)
            for name in sampled:
                got = functional.aggregate(work[name], pods[name], x, rows=rows, columns=columns, width=width)
                errors[name] = max(errors[name], _difference(got, expected))
    progress("checking results", 1.0)
    return errors


def _difference(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).abs().max()) if got.numel() else 0.0


def _sample(graph: Graph) -> np.ndarray:
    """Return [K], int64: targets of evenly spread windows, and the target with the most edges."""
    if graph.num_dst == 0:
        return np.empty(0, dtype=np.int64)
    starts = np.linspace(0, max(graph.num_dst - _TARGETS, 0), _WINDOWS).astype(np.int64)
    targets = np.concatenate([start + np.arange(min(_TARGETS, graph.num_dst)) for start in starts])
    return np.unique(np.append(targets, int(graph.in_degrees.argmax())))


def _rows_of(graph: Graph, rows: np.ndarray) -> Graph:
    """Return the graph of these destinations only, with all sources."""
    rowptr, col = graph.rowptr.numpy(), graph.col.numpy()
    counts = rowptr[rows + 1] - rowptr[rows]
    parts = [col[rowptr[row] : rowptr[row + 1]] for row in rows]
    sources = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return Graph.from_csr(torch.from_numpy(ends), torch.from_numpy(sources), num_src=graph.num_src)
