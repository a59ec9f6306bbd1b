"""Sensitivity of a model's aggregations to the clock of the units, which the paper does not give."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop.graph import Graph
from onehop.machines.ndp.machine import Machine
from onehop.machines.ndp.outcome import gain
from onehop.machines.ndp.windows import unit_share
from onehop.plans.ndp import NdpPlan

# From one 64-byte burst of DDR5-4800 a clock slot, at 16 lanes, to twice the default.
CLOCKS_MHZ = (300, 400, 600, 1200, 2400)


@dataclass(frozen=True, slots=True)
class ClockPoint:
    """All layers of a model at one clock.

    Attributes:
        clock_mhz: Clock of the units.
        time_ms: Time.
        speedup_over_baseline: Over the host alone.
        best_layer_over_baseline: The same, of the layer that gains most.
        speedup_over_prior: Over the best prior machine, which has units of the same clock.
        mappings: The chosen mapping of each layer.
        host_orders: The chosen order of each layer.
        unit_bound_share: Share of the reading time that the units add to the DRAM's, over all ranks and
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
    """Times of a model's aggregations at several clocks; mappings and orders are chosen anew at each.

    Args:
        machine: The machine; its counts are shared.
        graph: The graph.
        widths: Columns of the feature vectors that each layer aggregates, at least one layer.
        plan: Mapping, tiles, broadcasting, the host's order; None means the machine's plan.
        clocks_mhz: Clocks of the units.

    Raises:
        ArgumentError: A width or the plan does not fit, or a buffer cannot hold one output slice.
        ConfigurationError: A clock that is not positive.
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
