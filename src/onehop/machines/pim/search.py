"""The search for a plan: all candidates from what the busiest cores have, the best few in full.

The first step (estimate.py) needs, for each way to cut the matrix, the largest numbers of edges and rows of a
core; that costs a pass over the edges for each number of parts, and hardly anything else. The second step
counts the work of each tasklet, for the best candidates overall and of each way to balance.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.estimate import Estimator
from onehop.machines.pim.layout import suitable_grids
from onehop.machines.pim.operators.rows import Rows
from onehop.machines.pim.shapes import BalancedShapes, Shapes
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


def ranked(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, plans: list[PimPlan]
) -> list[tuple[PimPlan, float, float]]:
    """Ranks given plans.

    Args:
        config: The machine.
        shapes: The work of each core and tasklet.
        width: Feature columns.
        kernel: The types and operations of the cores' kernel.
        plans: Plans to choose from; at least one, alike in all that is not searched.

    Returns:
        The plans that were simulated in full, with their time and the first estimate, in ns, best first; none
        if none fits.
    """
    estimates = _estimates(config, shapes, width, kernel, plans)
    order = [int(i) for i in np.argsort(estimates, kind="stable") if np.isfinite(estimates[i])]
    looked_at = [
        (plans[i], in_full_ns(config, plans[i], shapes, width, kernel), float(estimates[i]))
        for i in _finalists(plans, order)
    ]
    return sorted((each for each in looked_at if np.isfinite(each[1])), key=lambda each: each[1])


def candidates(config: PimConfig, base: PimPlan, fixed: Mapping[str, Any] | None = None) -> list[PimPlan]:
    """The grid that is searched.

    Args:
        config: The machine.
        base: The plan whose other choices are kept.
        fixed: Fields that every plan has, by name, a grid that is not searched among them; None means none.

    Raises:
        ArgumentError: No grid has the fixed parts.
    """
    fixed = fixed or {}
    grids = [grid for grid in suitable_grids(config, CLUSTERS_PER_RANK) if grid[0] <= _MOST_SPARSE_PARTS]
    known = ", ".join(f"{sp}x{ds}" for sp, ds in grids)
    if {"sp", "ds"} <= fixed.keys():
        grids = [(fixed["sp"], fixed["ds"])]
    grids = [(sp, ds) for sp, ds in grids if (fixed.get("sp", sp), fixed.get("ds", ds)) == (sp, ds)]
    if not grids:
        (part,) = fixed.keys() & {"sp", "ds"}
        raise ArgumentError(
            f"plan: expected {part} of a grid that is searched ({known}), got {fixed[part]}; give sp and ds."
        )
    threads = [t for t in TASKLETS if t <= config.core.threads] or [config.core.threads]
    plans = (
        replace(
            base,
            **{
                "sp": sp,
                "ds": ds,
                "column_cut": cut,
                "format": form,
                "core_balance": by_core,
                "thread_balance": by_thread,
                "tasklets": tasklets,
                **fixed,
            },
        )
        for sp, ds in grids
        for cut in (CUTS if sp > 1 else CUTS[:1])
        for form, by_core, by_thread in SPLITS
        for tasklets in threads
    )
    return list(dict.fromkeys(plans))


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


def in_full_ns(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> float:
    """Time of a plan in full simulation; infinite if it does not fit."""
    try:
        return Rows(kernel, width).cost(config, plan, shapes).total_ns
    except (ArgumentError, MachineMemoryError):
        return float("inf")
