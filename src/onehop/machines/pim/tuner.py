"""Finds the best plan for a graph: all candidates from what the busiest cores have, the best few in full.

The first step (estimate.py) needs, for each way to cut the matrix, the largest numbers of edges and rows of a
core; that costs a pass over the edges for each number of parts, and hardly anything else. The second step
counts the work of each tasklet, for the best candidates overall and of each way to balance.
"""

import time
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.graph import Graph
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.estimate import Estimator
from onehop.machines.pim.layout import suitable_grids
from onehop.machines.pim.machine import Machine
from onehop.machines.pim.shapes import BalancedShapes, Shapes, check_width
from onehop.machines.pim.simulate import simulate
from onehop.plans.pim import PimPlan

# Format, core balance, thread balance. In COO, tasklets that share no row need no lock.
SPLITS = tuple(product(("csr", "coo"), ("row", "edge"), ("row", "edge")))
TASKLETS = (8, 12, 16, 24)
CUTS = ("equal", "edge")
CLUSTERS_PER_RANK = (1, 2, 4)
# More sparse parts than this mean more partial results than pays on any graph tried.
_MOST_SPARSE_PARTS = 64
# Candidates that are simulated in full: overall, and of each way to balance.
_FINALISTS = 6
_FINALISTS_EACH = 1
# A plan that is slower than the best by this factor, if balanced, is omitted.
_HOPELESS = 1.1


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Result of a search.

    Attributes:
        plan: The best plan.
        predicted_ns: Its predicted time.
        candidates: Number of plans considered.
        seconds: Duration of the search.
        ranking: The plans that were simulated in full, best first, with the earlier estimates.
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
) -> TuningResult:
    """The best plan for a graph, a width and a dtype.

    Args:
        machine: The machine.
        graph: A graph, or its size.
        width: Feature columns.
        dtype: Dtype of the features in the machine.
        weighted: Whether edges have weights.
        base: The plan whose choices are kept where the search has none: kernels, merge, buffers. None means
            the default's.

    Raises:
        ArgumentError: The width is not an integer of at least 1, or no plan fits the machine, whatever the
            grid.
    """
    check_width(width)
    began = time.perf_counter()
    base = PimPlan(stream=False) if base is None else base
    plans = candidates(machine.config, base)
    ranked = rank(machine, graph, width, dtype, plans, weighted=weighted)
    if not ranked and isinstance(graph, Graph):
        # Nothing fits at once; the default streams.
        plan = machine.plan(graph, width, dtype, weighted)
        ranked = [(plan, simulated_ns(machine, plan, graph, width, dtype, weighted), 0.0)]
    if not ranked or not np.isfinite(ranked[0][1]):
        raise ArgumentError(
            f"width: no plan for {width} columns of {dtype} fits {machine.name}; use one with more memory."
        )
    best, best_ns, _ = ranked[0]
    ranking = tuple((plan, estimate) for plan, _, estimate in ranked)
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
    """Ranks given plans.

    Args:
        machine: The machine.
        graph: A graph, or its size.
        width: Feature columns.
        dtype: Dtype of the features in the machine.
        plans: Plans to choose from; at least one, alike in all that is not searched.
        weighted: Whether edges have weights.

    Returns:
        The plans that were simulated in full, with their time and the first estimate, in ns, best first; none
        if none fits.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_width(width)
    shapes = machine.shapes(graph) if isinstance(graph, Graph) else graph
    kernel = machine.kernel(plans[0], dtype, weighted)
    estimates = _estimates(machine.config, shapes, width, kernel, plans)
    order = [int(i) for i in np.argsort(estimates, kind="stable") if np.isfinite(estimates[i])]
    looked_at = [
        (plans[i], _simulated_ns(machine.config, plans[i], shapes, width, kernel), float(estimates[i]))
        for i in _finalists(plans, order)
    ]
    return sorted((each for each in looked_at if np.isfinite(each[1])), key=lambda each: each[1])


def exhaustive(
    machine: Machine,
    graph: Graph | Shapes,
    width: int,
    dtype: str = "float32",
    *,
    weighted: bool = False,
    base: PimPlan | None = None,
) -> list[tuple[PimPlan, float]]:
    """Simulates every candidate that fits, best first; slow, to judge the tuner by.

    Raises:
        ArgumentError: The width is not an integer of at least 1.
    """
    check_width(width)
    shapes = machine.shapes(graph) if isinstance(graph, Graph) else graph
    base = PimPlan(stream=False) if base is None else base
    kernel = machine.kernel(base, dtype, weighted)
    found = [
        (plan, _simulated_ns(machine.config, plan, shapes, width, kernel))
        for plan in candidates(machine.config, base)
    ]
    return sorted((each for each in found if np.isfinite(each[1])), key=lambda each: each[1])


def candidates(config: PimConfig, base: PimPlan) -> list[PimPlan]:
    """The grid that is searched."""
    grids = [grid for grid in suitable_grids(config, CLUSTERS_PER_RANK) if grid[0] <= _MOST_SPARSE_PARTS]
    threads = [t for t in TASKLETS if t <= config.core.threads] or [config.core.threads]
    return [
        replace(
            base,
            sp=sp,
            ds=ds,
            column_cut=cut,
            format=form,
            core_balance=by_core,
            thread_balance=by_thread,
            tasklets=tasklets,
        )
        for sp, ds in grids
        for cut in (CUTS if sp > 1 else CUTS[:1])
        for form, by_core, by_thread in SPLITS
        for tasklets in threads
    ]


def _estimates(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, plans: list[PimPlan]
) -> np.ndarray:
    """Return [plans]: nanoseconds; infinite if a plan does not fit, or has far too many or few sparse parts.

    Counting a graph by its parts is most of the work. So numbers of parts are tried in the order of their
    balanced times, which no graph beats by much, until these exceed the best found.
    """
    by_parts: dict[int, list[int]] = {}
    for at, plan in enumerate(plans):
        by_parts.setdefault(plan.sp, []).append(at)
    size = BalancedShapes(shapes.num_src, shapes.num_dst, shapes.num_edges)
    balanced = Estimator(config, size, width, kernel)
    floors = {sp: balanced.estimates(_representatives(plans, own)).min() for sp, own in by_parts.items()}
    counted = Estimator(config, shapes, width, kernel)
    found = np.full(len(plans), np.inf)
    for sp in sorted(by_parts, key=floors.__getitem__):
        if floors[sp] > _HOPELESS * found.min():
            break
        found[by_parts[sp]] = counted.estimates([plans[at] for at in by_parts[sp]])
    return found


def _representatives(plans: list[PimPlan], which: list[int]) -> list[PimPlan]:
    """One for each grid, format and core balance: the others take the same time when balanced."""
    first: dict[tuple[int, str, str], PimPlan] = {}
    for at in which:
        plan = plans[at]
        known = first.setdefault((plan.ds, plan.format, plan.core_balance), plan)
        if plan.tasklets > known.tasklets:
            first[plan.ds, plan.format, plan.core_balance] = plan
    return list(first.values())


def _finalists(plans: list[PimPlan], order: list[int]) -> list[int]:
    """The first of all, and the first of each way to balance, in order."""
    chosen, seen = [], dict.fromkeys(SPLITS, 0)
    for place, index in enumerate(order):
        plan = plans[index]
        split = (plan.format, plan.core_balance, plan.thread_balance)
        if place < _FINALISTS or seen[split] < _FINALISTS_EACH:
            chosen.append(index)
            seen[split] += 1
    return chosen


def simulated_ns(
    machine: Machine, plan: PimPlan, graph: Graph, width: int, dtype: str, weighted: bool = False
) -> float:
    """Time of a plan in full simulation; infinite if it does not fit."""
    kernel = machine.kernel(plan, dtype, weighted)
    return _simulated_ns(machine.config, plan, machine.shapes(graph), width, kernel)


def _simulated_ns(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> float:
    try:
        return simulate(config, plan, shapes, width, kernel).total_ns
    except (ArgumentError, MachineMemoryError):
        return float("inf")
