"""Approximate times of many plans at once, from the busiest cores of each part."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onehop.machines.pim import links
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel, core_cycles
from onehop.machines.pim.footprint import mram_bytes, wram_bytes
from onehop.machines.pim.layout import ITEM_BYTES
from onehop.machines.pim.memory import cut_rule
from onehop.machines.pim.scheme import padded
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.plans.pim import PimPlan


class Estimator:
    """Estimates for plans that are alike in all that the tuner does not search.

    Tasklets are assumed to be balanced except for the largest row, which they cannot share unless edges are
    cut exactly.

    Args:
        config: The machine.
        shapes: The work of each core and tasklet.
        width: Feature columns.
        kernel: The types and operations of the cores' kernel.
    """

    def __init__(self, config: PimConfig, shapes: Shapes, width: int, kernel: Kernel) -> None:
        self.config, self.shapes, self.width, self.kernel = config, shapes, width, kernel
        self._maxima: dict[tuple[int, str, int, bool, bool], tuple[np.ndarray, ...]] = {}
        self._worst: dict[tuple[int, int, str, str, str, str], np.ndarray] = {}
        self._moving: dict[tuple[int, int, str, str, str], tuple[float, float]] = {}

    def estimates(self, plans: Sequence[PimPlan]) -> np.ndarray:
        """Return [plans]: nanoseconds; infinite for plans that do not fit."""
        found = np.full(len(plans), np.inf)
        groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for at, plan in enumerate(plans):
            moving_ns, bank = self._transfers(plan)
            slice_width = self._slice_width(plan)
            if not np.isfinite(moving_ns) or bank > self.config.core.mram_bytes:
                continue
            if wram_bytes(self.config, plan, self.kernel, slice_width) > self.config.core.wram_bytes:
                continue
            found[at] = moving_ns
            groups[plan.format, plan.thread_balance, slice_width].append(at)
        for (_, _, slice_width), members in groups.items():
            slowest = self._kernels([plans[at] for at in members], slice_width)
            found[members] += slowest * self.config.cycle_ns
        found *= [plan.rounds for plan in plans]
        return found

    def _slice_width(self, plan: PimPlan) -> int:
        """Feature columns of a cluster in one pass."""
        return math.ceil(math.ceil(self.width / plan.ds) / plan.rounds)

    def _kernels(self, plans: Sequence[PimPlan], slice_width: int) -> np.ndarray:
        """Return [plans]: cycles of the slowest core; for plans with the same kernel."""
        worst = [self._worst_parts(plan) for plan in plans]
        sizes = np.array([len(each) for each in worst])
        tasklets = np.repeat([plan.tasklets for plan in plans], sizes)
        counts = _evenly(tasklets, *np.concatenate(worst).T)
        if plans[0].hub_bytes:
            # The savings of hubs are counted for the finalists only.
            counts = replace(counts, hub_edges=np.zeros_like(counts.edges))
        cycles = core_cycles(self.config, plans[0], self.kernel, counts, slice_width)[0][:, 0]
        found: np.ndarray = np.maximum.reduceat(cycles, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        return found

    def _worst_parts(self, plan: PimPlan) -> np.ndarray:
        """Return [n, 3]: most edges, most rows, largest row of the parts that lead in some respect."""
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
        """Time that does not depend on tasklets: nanoseconds of transfers and merge, and bytes of a bank."""
        key = (plan.sp, plan.ds, plan.column_cut, plan.format, plan.core_balance)
        if key not in self._moving:
            self._moving[key] = self._move(plan)
        return self._moving[key]

    def _move(self, plan: PimPlan) -> tuple[float, float]:
        config, kernel, width = self.config, self.kernel, self.width
        item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
        slice_width = self._slice_width(plan)
        filled = padded(slice_width, min(item, sum_item), config.core.alignment_bytes)
        if filled * max(item, sum_item) > config.core.dma_most_bytes:
            return float("inf"), 0.0
        number, ranks = plan.sp * plan.ds, config.ranks
        most_edges, most_rows, all_rows = self._most(plan)
        part_columns = self.shapes.part_columns(plan.sp, plan.column_cut)
        bank = mram_bytes(config, plan, kernel, slice_width, part_columns, most_rows, most_edges).max()
        # Where the width leaves some clusters without columns.
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
        """Return [parts] each: most edges of a core, most rows, rows of all cores."""
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


def _evenly(tasklets: np.ndarray, edges: np.ndarray, rows: np.ndarray, largest_row: np.ndarray) -> WorkCounts:
    """Counts as if a core had the most edges and rows, and shared out all but the largest row.

    Args:
        tasklets: [n].
        edges: [n], edges of the core.
        rows: [n].
        largest_row: [n], edges.

    Returns:
        Counts of [n, 1, 2]: the tasklet with the largest row, and one that stands for all others.
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
