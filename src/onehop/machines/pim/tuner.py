"""Finds the best plan for a graph and reports how it was found; search.py has the search."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.common.checks import check_integer
from onehop.machines.pim.machine import Machine
from onehop.machines.pim.scheme import layout
from onehop.machines.pim.search import candidates, in_full_ns, ranked
from onehop.machines.pim.shapes import Shapes
from onehop.plans.pim import PimPlan


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a search.

    Attributes:
        plan: The best plan.
        predicted_ns: The predicted time of this plan.
        candidates: Number of plans considered.
        seconds: Duration of the search in seconds.
        ranking: The plans that were simulated in full, best first, each with its time and its first estimate.
    """

    plan: PimPlan
    predicted_ns: float
    candidates: int
    seconds: float
    ranking: tuple[tuple[PimPlan, float], ...]


def tune(
    machine: Machine,
    graph: Graph | Shapes,
    width: int,
    dtype: str = "float32",
    *,
    weighted: bool = False,
    base: PimPlan | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> TuningResult:
    """Find the best plan for a graph, a width and a dtype.

    Args:
        machine: The machine.
        graph: A graph, or its size.
        width: Number of feature columns.
        dtype: Dtype of the features in the machine.
        weighted: Whether edges have weights.
        base: The plan that gives the fields that are not searched: kernels, merge, buffers. None means the
            default plan.
        fixed: Fields by name that every plan has and that are not searched. None means no fields.

    Raises:
        ArgumentError: The width is not an integer of at least 1, the fixed fields cannot be placed on the
            machine, or no plan fits on any grid.

    Examples:
        >>> from onehop.machines import pim
        >>> shapes = pim.BalancedShapes(num_src=1000, num_dst=1000, num_edges=50_000)  # or a graph
        >>> plan = pim.tune(pim.Machine(), shapes, width=64, dtype="int32").plan
        >>> plan.sp, plan.ds, plan.format
        (1, 32, 'coo')
    """
    check_integer("width", width)
    began = time.perf_counter()
    base = PimPlan(stream=False) if base is None else base
    plans = candidates(machine.config, base, fixed)
    layout(machine.config, plans[0], width)  # the fixed fields may be impossible on this machine
    best_first = rank(machine, graph, width, dtype, plans, weighted=weighted)
    if not best_first and isinstance(graph, Graph):
        # Nothing fits at once, so the default plan is used, which streams.
        plan = replace(machine.default_plan(graph, width, dtype, weighted), **(fixed or {}))
        best_first = [(plan, simulated_ns(machine, plan, graph, width, dtype, weighted), 0.0)]
    if not best_first or not np.isfinite(best_first[0][1]):
        raise ArgumentError(
            f"width: no plan for {width} columns of {dtype} fits {machine.name}; use one with more memory."
        )
    best, best_ns, _ = best_first[0]
    ranking = tuple((plan, estimate) for plan, _, estimate in best_first)
    return TuningResult(best, best_ns, len(plans), time.perf_counter() - began, ranking)


def rank(
    machine: Machine,
    graph: Graph | Shapes,
    width: int,
    dtype: str,
    plans: list[PimPlan],
    *,
    weighted: bool = False,
) -> list[tuple[PimPlan, float, float]]:
    """Rank given plans as :func:`.search.ranked` does; the other arguments are described at :func:`tune`.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_integer("width", width)
    shapes = machine.shapes(graph) if isinstance(graph, Graph) else graph
    kernel = machine.kernel(plans[0], dtype, weighted)
    return ranked(machine.config, shapes, width, kernel, plans)


def exhaustive(
    machine: Machine,
    graph: Graph | Shapes,
    width: int,
    dtype: str = "float32",
    *,
    weighted: bool = False,
    base: PimPlan | None = None,
) -> list[tuple[PimPlan, float]]:
    """Simulate every candidate that fits, best first; this is slow, and serves to judge the tuner.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_integer("width", width)
    shapes = machine.shapes(graph) if isinstance(graph, Graph) else graph
    base = PimPlan(stream=False) if base is None else base
    kernel = machine.kernel(base, dtype, weighted)
    simulated = [
        (plan, in_full_ns(machine.config, plan, shapes, width, kernel))
        for plan in candidates(machine.config, base)
    ]
    return sorted((each for each in simulated if np.isfinite(each[1])), key=lambda each: each[1])


def simulated_ns(
    machine: Machine, plan: PimPlan, graph: Graph, width: int, dtype: str, weighted: bool = False
) -> float:
    """Return a plan's time in full simulation; infinite if it does not fit."""
    kernel = machine.kernel(plan, dtype, weighted)
    return in_full_ns(machine.config, plan, machine.shapes(graph), width, kernel)
