"""Times of whole models, with the host's part and the host alone for comparison, and by the units' clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onehop.graph import Graph
from onehop.machines.ndp.machine import Machine
from onehop.machines.ndp.models import layer_works
from onehop.machines.ndp.outcome import LayerOutcome, gain
from onehop.machines.ndp.windows import unit_share
from onehop.plans.ndp import NdpPlan

# From one 64-byte burst of DDR5-4800 per clock, at 16 lanes, to twice the default.
CLOCKS_MHZ = (300, 400, 600, 1200, 2400)


@dataclass(frozen=True, slots=True)
class ModelRun:
    """The times of a model's forward pass.

    Attributes:
        model: The model's name.
        layers: The model's layers, with the host's part inside their windows.
        combine_ns: The host's part, by layer.
        serial_ns: Time of the machine if the host's part followed each layer's aggregation, as the paper's
            Figure 8 draws it. The overlap in ``layers`` is our addition.
        baseline_ns: Time of the host alone: aggregation followed by the host's part.
    """

    model: str
    layers: list[LayerOutcome]
    combine_ns: list[float]
    serial_ns: float
    baseline_ns: float

    @property
    def time_ns(self) -> float:
        """Time of the machine, with the host's part inside the windows or after them, whichever is faster."""
        return min(self.overlapped_ns, self.serial_ns)

    @property
    def overlapped_ns(self) -> float:
        """Time with the host's part inside the windows."""
        return sum(one.time_ns for one in self.layers)

    @property
    def hidden_share(self) -> float:
        """Share of the host's part that the overlap hides."""
        combined = sum(self.combine_ns)
        return max(0.0, (self.serial_ns - self.overlapped_ns) / combined) if combined else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, ready for JSON."""
        return {
            "model": self.model,
            "time_ms": self.time_ns / 1e6,
            "overlapped_ms": self.overlapped_ns / 1e6,
            "serial_ms": self.serial_ns / 1e6,
            "baseline_ms": self.baseline_ns / 1e6,
            "speedup_over_baseline": gain(self.baseline_ns, self.time_ns),
            "serial_speedup_over_baseline": gain(self.baseline_ns, self.serial_ns),
            "overlapped_speedup_over_baseline": gain(self.baseline_ns, self.overlapped_ns),
            "combine_ms": [ns / 1e6 for ns in self.combine_ns],
            "combine_hidden_share": self.hidden_share,
            "mappings": [one.run.mapping for one in self.layers],
            "host_orders": [one.run.host_order for one in self.layers],
        }


def run_model(
    machine: Machine, graph: Graph, model: str, widths: list[int], plan: NdpPlan | None = None
) -> ModelRun:
    """Return the times of a model's forward pass.

    Args:
        machine: The machine.
        graph: The graph; sources and destinations are the same nodes.
        model: One of :data:`onehop.machines.ndp.models.MODELS`.
        widths: Columns of the features, of each hidden layer's output, and of the classes.
        plan: Mapping, tiles, broadcasting, the host's order; None means the machine's plan.

    Raises:
        ArgumentError: The model is unknown, a width or the plan does not fit, or a buffer cannot hold an
            output slice.
        ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))  # a ring
        >>> run = ndp.run_model(ndp.Machine(), graph, "gcn", widths=[64, 32, 8])
        >>> len(run.layers), run.time_ns > run.baseline_ns  # so small a graph is faster on the host
        (2, True)
    """
    works = layer_works(model, widths, machine.config.host)
    layers = machine.chained(graph, works, plan, record=0)
    apart = machine.chained(graph, [work.without_host for work in works], plan, record=0)
    combine = [work.ns * graph.num_dst for work in works]
    return ModelRun(
        model,
        layers,
        combine,
        sum(one.time_ns for one in apart) + sum(combine),
        sum(one.baseline.time_ns for one in layers) + sum(combine),
    )


@dataclass(frozen=True, slots=True)
class ClockPoint:
    """All layers of a model at one clock.

    Attributes:
        clock_mhz: Clock of the units.
        time_ms: Time of all layers in ms.
        speedup_over_baseline: Speedup over the host alone.
        best_layer_over_baseline: Speedup over the host alone, of the layer with the largest speedup.
        speedup_over_prior: Speedup over the best prior machine, whose units have the same clock.
        mappings: The chosen mapping of each layer.
        host_orders: The chosen order of each layer.
        unit_bound_share: Share of the reading time that the units add to the DRAM's time, over all ranks and
            layers.
    """

    clock_mhz: int
    time_ms: float
    speedup_over_baseline: float
    best_layer_over_baseline: float
    speedup_over_prior: float
    mappings: list[str]
    host_orders: list[str]
    unit_bound_share: float


def by_clock(
    machine: Machine,
    graph: Graph,
    widths: Sequence[int],
    plan: NdpPlan | None = None,
    clocks_mhz: Sequence[int] = CLOCKS_MHZ,
) -> list[ClockPoint]:
    """Return times of a model's aggregations at several clocks; mappings and orders are chosen per clock.

    Args:
        machine: The machine; its counts are shared.
        graph: The graph.
        widths: Columns of the feature vectors that each layer aggregates, at least one layer.
        plan: Mapping, tiles, broadcasting, the host's order; None means the machine's plan.
        clocks_mhz: Clocks of the units.

    Raises:
        ArgumentError: A width or the plan does not fit, or a buffer cannot hold one output slice.
        ConfigurationError: A clock is not positive.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.arange(8000).reshape(2, -1) % 500)
        >>> slow, fast = ndp.by_clock(ndp.Machine(), graph, [64], clocks_mhz=[300, 1200])
        >>> slow.clock_mhz, fast.clock_mhz, slow.time_ms > fast.time_ms
        (300, 1200, True)
    """
    points = []
    for clock in clocks_mhz:
        layers = machine.change(module={"clock_mhz": float(clock)}).layers(graph, widths, plan, record=0)
        total = sum(one.time_ns for one in layers)
        points.append(
            ClockPoint(
                clock,
                total / 1e6,
                gain(sum(one.baseline.time_ns for one in layers), total),
                max(gain(one.baseline.time_ns, one.time_ns) for one in layers),
                gain(sum(one.best_prior.serial_ns for one in layers), total),
                [one.run.mapping for one in layers],
                [one.run.host_order for one in layers],
                unit_share([one.run.schedule for one in layers]),
            )
        )
    return points
