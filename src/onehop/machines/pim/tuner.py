"""Finds the best plan for a graph: all candidates from what the busiest cores have, the best few in full.

The first step needs, for each way to cut the matrix, the largest numbers of edges and rows of a core, which
cost a pass over the edges for each number of parts, and hardly anything else. It takes tasklets to be
balanced, but for what they cannot share: the largest row, unless edges are cut exactly. The second step
counts what falls to each tasklet, for the best candidates of all and of each way to balance.
"""

import time
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.graph import Graph
from onehop.machines.pim import links
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel, core_cycles, mram_bytes, wram_bytes
from onehop.machines.pim.layout import ITEM_BYTES, padded, suitable_grids
from onehop.machines.pim.machine import Machine
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.shapes import Counts, Shapes
from onehop.machines.pim.simulate import simulate
from onehop.plans.pim import PimPlan

# Format, core balance, thread balance. In COO, tasklets that share no row need no lock.
SPLITS = tuple(product(("csr", "coo"), ("row", "edge"), ("row", "edge")))
TASKLETS = (8, 12, 16, 24)
CUTS = ("equal", "edge")
CLUSTERS_PER_RANK = (1, 2, 4)
# More sparse parts than this mean more partial results than any graph was seen to be worth.
_MOST_SPARSE_PARTS = 64
# Candidates that are looked at in full: of all, and of each way to balance.
_FINALISTS = 8
_FINALISTS_EACH = 2


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What was found.

    Attributes:
        plan: The best plan.
        predicted_ns: What it takes.
        candidates: How many plans were considered.
        seconds: How long the search took.
        ranking: The plans that were looked at in full, best first, with what was estimated before.
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
        dtype: Of the features in the machine.
        weighted: Whether edges have weights.
        base: Where the choices come from that are not searched: kernels, merge, buffers. None means the
            default's.

    Raises:
        ArgumentError: No plan fits the machine, whatever the grid.
    """
    began = time.perf_counter()
    base = PimPlan(stream=False) if base is None else base
    plans = candidates(machine.config, base)
    ranked = rank(machine, graph, width, dtype, plans, weighted=weighted)
    if not ranked and isinstance(graph, Graph):
        # Nothing fits in one go; the default streams.
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
    """The best of some plans.

    Args:
        machine: The machine.
        graph: A graph, or its size.
        width: Feature columns.
        dtype: Of the features in the machine.
        plans: To choose from; at least one, alike in what is not searched.
        weighted: Whether edges have weights.

    Returns:
        Those that were looked at in full, with the time that they take and what was estimated first, in ns,
        best first; none if none fits.
    """
    shapes = machine.shapes(graph) if isinstance(graph, Graph) else graph
    kernel = machine.kernel(plans[0], dtype, weighted)
    estimator = _Estimator(machine.config, shapes, width, kernel)
    estimates = np.array([estimator.estimate(plan) for plan in plans])
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
    """Every candidate that fits with what it takes in full, best first; slow, to judge the tuner by."""
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
    """What a plan takes in full simulation; infinite if it does not fit."""
    kernel = machine.kernel(plan, dtype, weighted)
    return _simulated_ns(machine.config, plan, machine.shapes(graph), width, kernel)


def _simulated_ns(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> float:
    try:
        return simulate(config, plan, shapes, width, kernel).total_ns
    except (ArgumentError, MachineMemoryError):
        return float("inf")


class _Estimator:
    """Estimates from maxima, with what candidates share computed once."""

    def __init__(self, config: PimConfig, shapes: Shapes, width: int, kernel: Kernel) -> None:
        self.config, self.shapes, self.width, self.kernel = config, shapes, width, kernel
        self._maxima: dict[tuple[int, str, int, bool, bool], tuple[np.ndarray, ...]] = {}
        self._moved: dict[tuple[int, int, str, str, str], tuple[float, int, float]] = {}
        self._shared: dict[tuple[int, int, str, str, str, str], tuple[np.ndarray, ...]] = {}

    def estimate(self, plan: PimPlan) -> float:
        """Nanoseconds; infinite if the plan does not fit."""
        config, kernel = self.config, self.kernel
        moving_ns, slice_width, bank = self._moving(plan)
        if not np.isfinite(moving_ns) or bank > config.core.mram_bytes:
            return float("inf")
        if wram_bytes(config, plan, kernel, slice_width) > config.core.wram_bytes:
            return float("inf")
        key = (plan.sp, plan.ds, plan.column_cut, plan.format, plan.core_balance, plan.thread_balance)
        if key not in self._shared:
            most_edges, most_rows, _ = self._of(plan)
            rows = self.shapes.largest_rows(plan.sp, plan.column_cut)
            rows = np.minimum(rows, most_edges)
            if plan.format == "coo" and plan.thread_balance == "edge":
                rows = np.zeros_like(rows)
            # Parts that are the most in some respect: the slowest core is in one of these.
            worst = np.unique([int(each.argmax()) for each in (most_edges, most_rows, rows)])
            self._shared[key] = (most_edges[worst], most_rows[worst], rows[worst])
        counts = _evenly(plan.tasklets, *self._shared[key])
        cycles = core_cycles(config, plan, kernel, counts, slice_width)[0]
        return moving_ns + float(cycles.max()) * config.cycle_ns

    def _moving(self, plan: PimPlan) -> tuple[float, int, float]:
        """What tasklets have no part in: time of transfers and merge, columns of a slice, bank bytes."""
        key = (plan.sp, plan.ds, plan.column_cut, plan.format, plan.core_balance)
        if key not in self._moved:
            self._moved[key] = self._transfers(plan)
        return self._moved[key]

    def _transfers(self, plan: PimPlan) -> tuple[float, int, float]:
        config, kernel, width = self.config, self.kernel, self.width
        item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
        slice_width = -(-width // plan.ds)
        filled = padded(slice_width, min(item, sum_item), config.core.alignment_bytes)
        misaligned = slice_width * item % config.core.alignment_bytes and not plan.pad
        if misaligned or filled * max(item, sum_item) > config.core.dma_most_bytes:
            return float("inf"), slice_width, 0.0
        number, ranks = plan.sp * plan.ds, config.ranks
        most_edges, most_rows, all_rows = self._of(plan)
        part_columns = self.shapes.part_columns(plan.sp, plan.column_cut)
        bank = mram_bytes(config, plan, kernel, slice_width, part_columns, most_rows, most_edges).max()
        # Where the width gives some clusters nothing to do.
        busy_dense = -(-width // max(slice_width, 1))
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
        return moving, slice_width, float(bank)

    def _of(self, plan: PimPlan) -> tuple[np.ndarray, ...]:
        """[parts] each: most edges of a core, most rows, rows of all cores."""
        cores = max(self.config.cores // (plan.sp * plan.ds), 1)
        by_edge, coo = plan.core_balance == "edge", plan.format == "coo"
        # COO's "row" is CSR's "edge": the same greedy cut between rows.
        straddling, greedy = coo and by_edge, by_edge or coo
        key = (plan.sp, plan.column_cut, cores, straddling, greedy)
        if key not in self._maxima:
            form, balance = ("coo", "edge") if straddling else ("csr", "edge" if greedy else "row")
            single = replace(plan, format=form, core_balance=balance, thread_balance="row", tasklets=1)
            counts = self.shapes.counts(plan.sp, plan.column_cut, cut_rule(single, self.kernel, cores))
            rows = counts.core_rows
            self._maxima[key] = (counts.core_edges.max(axis=1), rows.max(axis=1), rows.sum(axis=1))
        return self._maxima[key]


def _evenly(tasklets: int, edges: np.ndarray, rows: np.ndarray, largest_row: np.ndarray) -> Counts:
    """As if a core had the most edges, the most rows and the largest row, and shared out all but that row."""
    first = np.maximum(edges / tasklets, largest_row)
    others = (edges - first) / max(tasklets - 1, 1)
    shape = (len(edges), 1, tasklets)
    spread = np.empty(shape)
    spread[:, 0] = others[:, None]
    spread[:, 0, 0] = first
    filled = np.minimum(rows, edges)
    return Counts(
        spread,
        np.broadcast_to((rows / tasklets)[:, None, None], shape),
        np.broadcast_to((filled / tasklets)[:, None, None], shape),
        rows[:, None],
    )
