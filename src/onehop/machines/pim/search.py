"""The search for a plan: estimates for all candidates, full simulation of the best few.

The first step (:class:`Estimator`) needs, for each way to cut the matrix, the largest numbers of edges and
rows of a core. Its main cost is a pass over the edges for each number of parts. The second step counts the
work of each tasklet, for the best candidates overall and for the best of each way to balance.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.machines.pim import links
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel, core_cycles
from onehop.machines.pim.memory import cut_rule, fits, mram_bytes, wram_bytes
from onehop.machines.pim.operators.rows import Rows
from onehop.machines.pim.scheme import suitable_grids
from onehop.machines.pim.shapes import BalancedShapes, Shapes, WorkCounts
from onehop.plans.pim import PimPlan

# A plan that leaves this share of the banks free also fits most unbalanced graphs.
_HEADROOM = 0.7
# Format, core balance, thread balance. In COO, tasklets that do not share a row need no lock.
SPLITS = tuple(product(("csr", "coo"), ("row", "edge"), ("row", "edge")))
TASKLETS = (8, 12, 16, 24)
CUTS = ("equal", "edge")
CLUSTERS_PER_RANK = (1, 2, 4)
# With more sparse parts than this, the partial results cost more than they save on every graph tried.
_MOST_SPARSE_PARTS = 64
# Number of candidates that are simulated in full: overall, and of each way to balance.
_FINALISTS = 6
_FINALISTS_EACH = 1
# A plan that is slower than the best by this factor, with balanced work, is omitted.
_HOPELESS = 1.1


class Estimator:
    """Estimates for plans that differ only in the fields that the tuner searches.

    Tasklets are assumed to be balanced except for the largest row, which they cannot share unless edges are
    cut exactly.
    """

    def __init__(self, config: PimConfig, shapes: Shapes, width: int, kernel: Kernel) -> None:
        self.config, self.shapes, self.width, self.kernel = config, shapes, width, kernel
        self._maxima: dict[tuple[int, str, int, bool, bool], tuple[np.ndarray, ...]] = {}
        self._worst: dict[tuple[int, int, str, str, str, str], np.ndarray] = {}
        self._moving: dict[tuple[int, int, str, str, str], tuple[float, float]] = {}

    def estimates(self, plans: Sequence[PimPlan]) -> np.ndarray:
        """Return [plans]: time in nanoseconds; infinite for plans that do not fit."""
        times = np.full(len(plans), np.inf)
        groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for at, plan in enumerate(plans):
            moving_ns, bank = self._transfers(plan)
            slice_width = self._slice_width(plan)
            if not np.isfinite(moving_ns) or bank > self.config.core.mram_bytes:
                continue
            if wram_bytes(self.config, plan, self.kernel, slice_width) > self.config.core.wram_bytes:
                continue
            times[at] = moving_ns
            groups[plan.format, plan.thread_balance, slice_width].append(at)
        for (_, _, slice_width), members in groups.items():
            slowest = self._kernels([plans[at] for at in members], slice_width)
            times[members] += slowest * self.config.cycle_ns
        times *= [plan.rounds for plan in plans]
        return times

    def _slice_width(self, plan: PimPlan) -> int:
        """Return the feature columns of a cluster in one pass."""
        return math.ceil(math.ceil(self.width / plan.ds) / plan.rounds)

    def _kernels(self, plans: Sequence[PimPlan], slice_width: int) -> np.ndarray:
        """Return [plans]: cycles of the slowest core, for plans with the same kernel."""
        worst = [self._worst_parts(plan) for plan in plans]
        sizes = np.array([len(each) for each in worst])
        tasklets = np.repeat([plan.tasklets for plan in plans], sizes)
        counts = _evenly(tasklets, *np.concatenate(worst).T)
        if plans[0].hub_bytes:
            # The savings of hubs are counted for the finalists only.
            counts = replace(counts, hub_edges=np.zeros_like(counts.edges))
        cycles = core_cycles(self.config, plans[0], self.kernel, counts, slice_width)[0][:, 0]
        slowest: np.ndarray = np.maximum.reduceat(cycles, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        return slowest

    def _worst_parts(self, plan: PimPlan) -> np.ndarray:
        """Return [n, 3]: most edges, most rows and largest row of the parts that lead in some respect."""
        key = (plan.sp, plan.ds, plan.column_cut, plan.format, plan.core_balance, plan.thread_balance)
        if key not in self._worst:
            most_edges, most_rows, _ = self._most(plan)
            row = np.minimum(self.shapes.largest_rows(plan.sp, plan.column_cut), most_edges)
            if plan.format == "coo" and plan.thread_balance == "edge":
                row = np.zeros_like(row)
            table = np.stack([most_edges, most_rows, row], axis=1).astype(np.float64)
            self._worst[key] = table[np.unique(table.argmax(axis=0))]
        return self._worst[key]

    def _transfers(self, plan: PimPlan) -> tuple[float, float]:
        """Return what does not depend on tasklets: ns of transfers and merge, and bytes of a bank."""
        key = (plan.sp, plan.ds, plan.column_cut, plan.format, plan.core_balance)
        if key not in self._moving:
            self._moving[key] = self._move(plan)
        return self._moving[key]

    def _move(self, plan: PimPlan) -> tuple[float, float]:
        config, kernel, width = self.config, self.kernel, self.width
        item, sum_item, slice_width = kernel.item, kernel.sum_item, self._slice_width(plan)
        filled = kernel.filled(config, slice_width)
        if filled * max(item, sum_item) > config.core.dma_most_bytes:
            return float("inf"), 0.0
        number, ranks = plan.sp * plan.ds, config.ranks
        most_edges, most_rows, all_rows = self._most(plan)
        part_columns = self.shapes.part_columns(plan.sp, plan.column_cut)
        bank = mram_bytes(config, plan, kernel, slice_width, part_columns, most_rows, most_edges).max()
        # The width may leave some clusters without columns.
        busy_dense = -(-width // max(-(-width // plan.ds), 1))
        share = busy_dense / plan.ds
        delivered = config.cores / plan.sp * float(part_columns.sum()) * filled * item * share
        per_rank, spanned = max(number // ranks, 1), max(ranks // number, 1)
        blocks = np.repeat(most_rows * filled * sum_item, plan.ds)
        rank_blocks = np.repeat(blocks.reshape(-1, per_rank).max(axis=1), spanned) * share
        straddling = plan.format == "coo" and plan.core_balance == "edge"
        slices = sum_item / 4 * slice_width
        rows = (float(all_rows[0]) * busy_dense, float(all_rows[1:].sum()) * busy_dense)
        transfer = links.broadcast_ns if number <= ranks else links.push_ns
        moving = (
            transfer(config, delivered)
            + links.retrieve_ns(config, rank_blocks, plan.reuse_buffers)
            + links.merge_ns(config.links, rows, (slices, slices), (straddling, True), plan.merge_threads)
        )
        return moving, float(bank)

    def _most(self, plan: PimPlan) -> tuple[np.ndarray, ...]:
        """Return [parts] each: most edges of a core, most rows of a core, rows of all cores."""
        cores = max(self.config.cores // (plan.sp * plan.ds), 1)
        by_edge, coo = plan.core_balance == "edge", plan.format == "coo"
        # COO's "row" equals CSR's "edge": the same greedy cut between rows.
        straddling, greedy = coo and by_edge, by_edge or coo
        key = (plan.sp, plan.column_cut, cores, straddling, greedy)
        if key not in self._maxima:
            form, balance = ("coo", "edge") if straddling else ("csr", "edge" if greedy else "row")
            single = replace(plan, format=form, core_balance=balance, thread_balance="row", tasklets=1)
            counts = self.shapes.counts(plan.sp, plan.column_cut, cut_rule(single, self.kernel, cores))
            rows = counts.core_rows
            self._maxima[key] = (counts.core_edges.max(axis=1), rows.max(axis=1), rows.sum(axis=1))
        return self._maxima[key]


def _evenly(tasklets: np.ndarray, edges: np.ndarray, rows: np.ndarray, largest_row: np.ndarray) -> WorkCounts:
    """Count work as if a core had the most edges and rows, [n], and divided all but the largest row evenly.

    Returns counts of [n, 1, 2]: the tasklet with the largest row, and one tasklet that represents all others.
    """
    first = np.maximum(edges / tasklets, largest_row)
    each = (edges - first) / np.maximum(tasklets - 1, 1)
    filled = np.minimum(rows, edges)

    def both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.stack([one, other], axis=-1)[:, None]

    return WorkCounts(
        both(first, each),
        both(rows / tasklets, rows / tasklets),
        both(filled / tasklets, filled / tasklets),
        rows[:, None],
        copies=both(np.ones(len(tasklets)), tasklets - 1.0),
    )


def default_plan(config: PimConfig, size: BalancedShapes, width: int, kernel: Kernel) -> PimPlan:
    """Return the grid that is fastest for a graph of this size if the work is perfectly balanced.

    The plan streams, so that it runs even if the graph is too unbalanced for the grid.
    """
    tasklets = min(16, config.core.threads)
    plain = PimPlan(tasklets=tasklets, stream=True)
    smaller = config.with_(mram_bytes=int(config.core.mram_bytes * _HEADROOM))
    best, best_ns = None, float("inf")
    for sp, ds in suitable_grids(config):
        plan = replace(plain, sp=sp, ds=ds)
        if fits(smaller, plan, size, width, kernel):
            took = Rows(kernel, width).cost(config, plan, size).total_ns
            if took < best_ns:
                best, best_ns = plan, took
    if best is not None:
        return best
    # If nothing fits at once: the most blocks of columns, and as many rounds as needed.
    sp = max(sp for sp, ds in suitable_grids(config))
    return replace(plain, sp=sp, ds=config.ranks // sp)


def ranked(
    config: PimConfig, shapes: Shapes, width: int, kernel: Kernel, plans: list[PimPlan]
) -> list[tuple[PimPlan, float, float]]:
    """Rank given plans: at least one; they must be equal in all fields that are not searched.

    Returns:
        The plans that were simulated in full, with their time and their first estimate in ns, best first;
        empty if no plan fits.
    """
    estimates = _estimates(config, shapes, width, kernel, plans)
    order = [int(i) for i in np.argsort(estimates, kind="stable") if np.isfinite(estimates[i])]
    looked_at = [
        (plans[i], in_full_ns(config, plans[i], shapes, width, kernel), float(estimates[i]))
        for i in _finalists(plans, order)
    ]
    return sorted((each for each in looked_at if np.isfinite(each[1])), key=lambda each: each[1])


def candidates(config: PimConfig, base: PimPlan, fixed: Mapping[str, Any] | None = None) -> list[PimPlan]:
    """Return the plans to search around a plan: they keep its other fields, and have the fixed fields.

    Raises:
        ArgumentError: No grid has the fixed parts.
    """
    fixed = fixed or {}
    grids = [grid for grid in suitable_grids(config, CLUSTERS_PER_RANK) if grid[0] <= _MOST_SPARSE_PARTS]
    shown = ", ".join(f"{sp}x{ds}" for sp, ds in grids)
    if {"sp", "ds"} <= fixed.keys():
        grids = [(fixed["sp"], fixed["ds"])]
    grids = [(sp, ds) for sp, ds in grids if (fixed.get("sp", sp), fixed.get("ds", ds)) == (sp, ds)]
    if not grids:
        (part,) = fixed.keys() & {"sp", "ds"}
        raise ArgumentError(
            f"plan: expected {part} of a grid that is searched ({shown}), got {fixed[part]}; give sp and ds."
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
    """Return [plans]: nanoseconds; infinite if a plan does not fit or has far too many or few sparse parts.

    Most of the work is counting a graph by its parts. So numbers of parts are tried in the order of their
    balanced times, which no graph beats by much, until the balanced times exceed the best time so far.
    """
    by_parts: dict[int, list[int]] = {}
    for at, plan in enumerate(plans):
        by_parts.setdefault(plan.sp, []).append(at)
    size = BalancedShapes(shapes.num_src, shapes.num_dst, shapes.num_edges)
    balanced = Estimator(config, size, width, kernel)
    floors = {sp: balanced.estimates(_representatives(plans, group)).min() for sp, group in by_parts.items()}
    counted = Estimator(config, shapes, width, kernel)
    times = np.full(len(plans), np.inf)
    for sp in sorted(by_parts, key=floors.__getitem__):
        if floors[sp] > _HOPELESS * times.min():
            break
        times[by_parts[sp]] = counted.estimates([plans[at] for at in by_parts[sp]])
    return times


def _representatives(plans: list[PimPlan], which: list[int]) -> list[PimPlan]:
    """Return one plan per grid, format and core balance; others take the same time when work is balanced."""
    first: dict[tuple[int, str, str], PimPlan] = {}
    for at in which:
        plan = plans[at]
        representative = first.setdefault((plan.ds, plan.format, plan.core_balance), plan)
        if plan.tasklets > representative.tasklets:
            first[plan.ds, plan.format, plan.core_balance] = plan
    return list(first.values())


def _finalists(plans: list[PimPlan], order: list[int]) -> list[int]:
    """Return the first candidates overall, and the first of each way to balance, in order."""
    chosen, seen = [], dict.fromkeys(SPLITS, 0)
    for place, index in enumerate(order):
        plan = plans[index]
        split = (plan.format, plan.core_balance, plan.thread_balance)
        if place < _FINALISTS or seen[split] < _FINALISTS_EACH:
            chosen.append(index)
            seen[split] += 1
    return chosen


def in_full_ns(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> float:
    """Return a plan's time in full simulation; infinite if it does not fit."""
    try:
        return Rows(kernel, width).cost(config, plan, shapes).total_ns
    except (ArgumentError, MachineMemoryError):
        return float("inf")
