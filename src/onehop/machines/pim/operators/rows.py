"""The cost of operators on rows of features: passes over clusters, each with five phases."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel, core_cycles, hub_rows
from onehop.machines.pim.memory import check_memory, check_rows, cut_rule, round_slices, stored_width
from onehop.machines.pim.passes import Loads, Pass, Ran, hide_merges, report_of, send_pieces
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.scheme import Cluster, Placement, layout
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.plans.pim import PimPlan


@dataclass(frozen=True, slots=True)
class Rows:
    """The cost of sums, or of max or min, of the feature rows of each row's edges.

    Attributes:
        kernel: The dtypes and operations of the cores' kernel.
        width: Feature columns.
    """

    kernel: Kernel
    width: int

    def cost(self, config: PimConfig, plan: PimPlan, shapes: Shapes) -> PimReport:
        """Return the report of a run; see :class:`.base.Operator`."""
        kernel, width = self.kernel, self.width
        check_rows(config, plan, kernel, width)
        plan, needed = check_memory(config, plan, shapes, width, kernel)
        run = _Run(config, plan, shapes, self)
        done = list(run.passes())
        if plan.block_rounds > 1:
            send_pieces(config, done, needed.sparse_bytes)
        if plan.pipelined:
            hide_merges(done)
        operations = (1.0 + kernel.multiplies) * shapes.num_edges * width
        figures = {"operator": "extremum" if kernel.compares else "sum"}
        return report_of(
            config, plan, kernel, Ran(done, needed, run.core_busy, run.tasklet_busy, operations, figures)
        )


class _Run:
    """A plan on a machine, with the data that its passes share."""

    def __init__(self, config: PimConfig, plan: PimPlan, shapes: Shapes, operator: Rows) -> None:
        self.config, self.plan, self.shapes = config, plan, shapes
        self.width, self.kernel = operator.width, operator.kernel
        self.placed: Placement = layout(config, plan, self.width)
        self.parts = plan.sp * plan.block_rounds
        self.columns = shapes.part_columns(self.parts, plan.column_cut)
        self.core_busy = np.zeros(config.cores)
        self.tasklet_busy = np.zeros((config.cores, plan.tasklets))
        self._counts: dict[int, WorkCounts] = {}
        self._cycles: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def counts(self, cores: int) -> WorkCounts:
        """Return the work in clusters of a given number of cores."""
        if cores not in self._counts:
            rule = cut_rule(self.plan, self.kernel, cores)
            self._counts[cores] = self.shapes.counts(self.parts, self.plan.column_cut, rule)
        return self._counts[cores]

    def cycles(self, cores: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return [parts, cores] and [parts, cores, tasklets]: cycles of the kernel."""
        key = (cores, width)
        if key not in self._cycles:
            counts = self.counts(cores)
            hubs = hub_rows(self.config, self.plan, self.kernel, width)
            if hubs:
                rule = cut_rule(self.plan, self.kernel, cores)
                hub_edges = self.shapes.hub_edges(self.parts, self.plan.column_cut, rule, hubs)
                counts = replace(counts, hub_edges=hub_edges)
            self._cycles[key] = core_cycles(self.config, self.plan, self.kernel, counts, width)
        return self._cycles[key]

    def passes(self) -> Iterator[Pass]:
        """Yield all passes, one after the other."""
        slices = [round_slices(cluster, self.plan.rounds) for cluster in self.placed.clusters]
        for block in range(self.plan.block_rounds):
            for feature_round in range(self.plan.rounds):
                widths = tuple(end - begin for begin, end in (s[feature_round] for s in slices))
                if any(widths):
                    yield self._pass(block, widths)

    def _pass(self, block: int, widths: tuple[int, ...]) -> Pass:
        config, plan, kernel = self.config, self.plan, self.kernel
        item, sum_item = kernel.item, kernel.sum_item
        linked = config.links.core_to_core_gbps > 0 and self.parts > 1
        straddling = plan.format == "coo" and plan.core_balance == "edge"
        loads = Loads(config, plan, sum_item, self.placed.broadcast)
        if straddling and block == 0:
            # The host sets the output to zero before it adds results.
            loads.cleared = self.shapes.num_dst * self.width * sum_item
        for (cores, width), alike in _alike(self.placed.clusters, widths).items():
            part = np.array([cluster.part for cluster in alike]) * plan.block_rounds + block
            first = np.array([cluster.first_core for cluster in alike])
            spanned = alike[0].ranks
            rank = np.array([cluster.rank for cluster in alike])[:, None] + np.arange(spanned)
            filled_width = stored_width(config, plan, kernel, width)
            cycles, tasklets = self.cycles(cores, width)
            busy = cycles[part] * config.cycle_ns
            core_numbers = first[:, None] + np.arange(cores)
            self.core_busy[core_numbers] += busy
            self.tasklet_busy[core_numbers] += tasklets[part] * config.cycle_ns
            np.maximum.at(loads.kernel_ns, rank, busy.max(axis=1)[:, None])
            np.maximum.at(loads.features, rank, (self.columns[part] * filled_width * item)[:, None])
            rows = self.counts(cores).core_rows[part]
            most_rows, all_rows = rows.max(axis=1), rows.sum(axis=1)
            if linked:
                # The cores pass on the other parts' results among themselves; the host pulls only the first
                # part's.
                loads.passed += float(all_rows[part > 0].sum()) * width * sum_item
                most_rows, all_rows = most_rows * (part == 0), all_rows * (part == 0)
            loads.useful += float(self.columns[part].sum()) * cores * width * item
            loads.useful += float(all_rows.sum()) * width * sum_item
            np.maximum.at(loads.results, rank, (most_rows * filled_width * sum_item)[:, None])
            for added in (False, True):
                merged = float(all_rows[(straddling | (part > 0)) == added].sum())
                if merged:
                    loads.merge(width, added, merged)
        return loads.timed(block, widths)


def _alike(clusters: Sequence[Cluster], widths: Sequence[int]) -> dict[tuple[int, int], list[Cluster]]:
    """Group the clusters that have columns by their number of cores and of columns."""
    groups: dict[tuple[int, int], list[Cluster]] = {}
    for cluster, width in zip(clusters, widths, strict=True):
        if width:
            groups.setdefault((cluster.cores, width), []).append(cluster)
    return groups
