"""The time of a run: passes over clusters, each with five phases, from the counts of a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from onehop.machines.pim import links
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel, core_cycles, hub_rows
from onehop.machines.pim.layout import (
    ITEM_BYTES,
    Cluster,
    Placement,
    layout,
    round_slices,
    stored_width,
    wide_enough,
)
from onehop.machines.pim.memory import check_memory, cut_rule
from onehop.machines.pim.passes import Busy, Pass, argument_bytes, hide_merges, report_of, send_pieces
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.plans.pim import PimPlan


def simulate(config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> PimReport:
    """Simulates one aggregation.

    Args:
        config: The machine.
        plan: The plan.
        shapes: The work of each core and tasklet.
        width: Feature columns.
        kernel: The types and operations of the cores' kernel.

    Raises:
        ArgumentError: The plan does not fit the machine or the width.
        MachineMemoryError: It needs more memory than a core has.
    """
    wide_enough(config, plan, width, kernel.dtype, kernel.sums)
    plan, needed = check_memory(config, plan, shapes, width, kernel)
    run = _Run(config, plan, shapes, width, kernel)
    done = list(run.passes())
    if plan.block_rounds > 1:
        send_pieces(config, done, needed.sparse_bytes)
    if plan.pipelined:
        hide_merges(done)
    operations = (1.0 + kernel.multiplies) * shapes.num_edges * width
    busy = Busy(run.core_busy, run.tasklet_busy)
    figures = {"operator": "extremum" if kernel.compares else "sum"}
    return report_of(config, plan, kernel, done, needed, busy, operations, figures)


class _Run:
    """A plan on a machine, with the data that its passes share."""

    def __init__(self, config: PimConfig, plan: PimPlan, shapes: Shapes, width: int, kernel: Kernel) -> None:
        self.config, self.plan, self.shapes, self.width, self.kernel = config, plan, shapes, width, kernel
        self.placed: Placement = layout(config, plan, width)
        self.parts = plan.sp * plan.block_rounds
        self.columns = shapes.part_columns(self.parts, plan.column_cut)
        self.core_busy = np.zeros(config.cores)
        self.tasklet_busy = np.zeros((config.cores, plan.tasklets))
        self._counts: dict[int, WorkCounts] = {}
        self._cycles: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._retrieved: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def counts(self, cores: int) -> WorkCounts:
        """The work in clusters of a given number of cores."""
        if cores not in self._counts:
            rule = cut_rule(self.plan, self.kernel, cores)
            counts = self._counts[cores] = self.shapes.counts(self.parts, self.plan.column_cut, rule)
            self._retrieved[cores] = (counts.core_rows.max(axis=1), counts.core_rows.sum(axis=1))
        return self._counts[cores]

    def rows(self, cores: int) -> tuple[np.ndarray, np.ndarray]:
        """Return [parts] twice: most rows of results of a core, and of all cores of the cluster."""
        self.counts(cores)
        return self._retrieved[cores]

    def cycles(self, cores: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return [parts, cores] and [parts, cores, tasklets]: cycles of the kernel."""
        key = (cores, width)
        if key not in self._cycles:
            counts = self.counts(cores)
            hubs = hub_rows(self.config, self.plan, self.kernel, width)
            if hubs:
                rule = cut_rule(self.plan, self.kernel, cores)
                found = self.shapes.hub_edges(self.parts, self.plan.column_cut, rule, hubs)
                counts = replace(counts, hub_edges=found)
            self._cycles[key] = core_cycles(self.config, self.plan, self.kernel, counts, width)
        return self._cycles[key]

    def passes(self) -> Iterator[Pass]:
        """All passes, one after the other."""
        slices = [round_slices(cluster, self.plan.rounds) for cluster in self.placed.clusters]
        for block in range(self.plan.block_rounds):
            for feature_round in range(self.plan.rounds):
                widths = tuple(end - begin for begin, end in (s[feature_round] for s in slices))
                if any(widths):
                    yield self._pass(block, widths)

    def _pass(self, block: int, widths: tuple[int, ...]) -> Pass:
        config, plan, kernel = self.config, self.plan, self.kernel
        item, sum_item = ITEM_BYTES[kernel.dtype], ITEM_BYTES[kernel.sums]
        rank_cores = np.array(config.rank_cores)
        slice_bytes, blocks = np.zeros(config.ranks), np.zeros(config.ranks)
        kernel_ns = np.zeros(config.ranks)
        merges: dict[tuple[int, bool], float] = {}
        linked = config.links.core_to_core_gbps > 0 and self.parts > 1
        straddling = plan.format == "coo" and plan.core_balance == "edge"
        useful_features = useful_results = summed = 0.0

        for (cores, width), alike in _alike(self.placed.clusters, widths).items():
            part = np.array([cluster.part for cluster in alike]) * plan.block_rounds + block
            first = np.array([cluster.first_core for cluster in alike])
            spanned = alike[0].ranks
            rank = np.array([cluster.rank for cluster in alike])[:, None] + np.arange(spanned)
            filled_width = stored_width(plan, width, min(item, sum_item), config.core.alignment_bytes)
            cycles, tasklets = self.cycles(cores, width)
            busy = cycles[part] * config.cycle_ns
            own = first[:, None] + np.arange(cores)
            self.core_busy[own] += busy
            self.tasklet_busy[own] += tasklets[part] * config.cycle_ns
            np.maximum.at(kernel_ns, rank, busy.max(axis=1)[:, None])
            np.maximum.at(slice_bytes, rank, (self.columns[part] * filled_width * item)[:, None])
            useful_features += float(self.columns[part].sum()) * cores * width * item
            most_rows, all_rows = (found[part] for found in self.rows(cores))
            if linked:
                # The other parts' results are passed on, core to core; only the first part's are pulled.
                summed += float(all_rows[part > 0].sum()) * width * sum_item
                most_rows, all_rows = most_rows * (part == 0), all_rows * (part == 0)
            useful_results += float(all_rows.sum()) * width * sum_item
            np.maximum.at(blocks, rank, (most_rows * filled_width * sum_item)[:, None])
            for added in (False, True):
                rows = float(all_rows[(straddling | (part > 0)) == added].sum())
                if rows:
                    merges[width, added] = merges.get((width, added), 0.0) + rows

        # Transfers to or from a rank's cores are of one size, its largest.
        features = slice_bytes * rank_cores
        arguments = argument_bytes(config, plan)
        pushed = arguments + (0.0 if self.placed.broadcast else float(features.sum()))
        broadcast = float(features.sum()) if self.placed.broadcast else 0.0
        phases = {
            "send": links.push_ns(config, pushed),
            "broadcast": links.broadcast_ns(config, broadcast),
            "retrieve": links.retrieve_ns(config, blocks, plan.reuse_buffers),
        }
        loading = phases["send"] + phases["broadcast"]
        start = np.full(config.ranks, loading)
        if features.sum():
            # A rank starts as soon as it has its data.
            shared = phases["broadcast"] if self.placed.broadcast else phases["send"]
            start = start - shared + links.shared_finish(features, float(features.sum()) / shared)
        launched = config.links.call_us * 1e3
        adding = summed / config.links.core_to_core_gbps if linked else 0.0
        phases["kernel"] = max(float((start + kernel_ns).max()) - loading, 0.0) + launched + adding
        merge, traffic = self._merge(merges, sum_item, straddling and block == 0)
        phases["merge"] = merge
        delivered = float(features.sum())
        retrieved = float((blocks * rank_cores).sum())
        moved = {
            "send": round(pushed),
            "broadcast": round(broadcast),
            "retrieve": round(retrieved),
            "merge": round(traffic),
            "padding": round(delivered - useful_features + retrieved - useful_results),
            "core_to_core": round(summed),
        }
        return Pass(block, widths, phases, moved, start, kernel_ns)

    def _merge(self, merges: dict[tuple[int, bool], float], item: int, cleared: bool) -> tuple[float, float]:
        """Time of the merge, and the bytes that it moves in the host's memory."""
        config, plan = self.config, self.plan
        rows, adds = list(merges.values()), [add for _, add in merges]
        time = links.merge_ns(
            config.links, rows, [width * item / 4 for width, _ in merges], adds, plan.merge_threads
        )
        traffic = 0.0
        line = config.links.host_line_bytes
        for (width, _), count in merges.items():
            size = width * item
            # Core by core, each row's slice visits the cache lines that it touches separately.
            touched = size if plan.merge_order == "row" else -(-size // line) * line
            traffic += count * (size + 2 * touched)
        floor = traffic / config.links.host_dram_gbps
        time = max(time, floor)
        if cleared:
            # Before results are added, the output is set to zero; if it is new, this is its first touch.
            size = self.shapes.num_dst * self.width * item
            fault = 0.0 if plan.reuse_buffers else config.links.page_fault_ns / config.links.page_bytes
            time, traffic = time + size * (1 / config.links.host_dram_gbps + fault), traffic + size
        return time, traffic


def _alike(clusters: Sequence[Cluster], widths: Sequence[int]) -> dict[tuple[int, int], list[Cluster]]:
    """The clusters that have columns, by their number of cores and of columns."""
    groups: dict[tuple[int, int], list[Cluster]] = {}
    for cluster, width in zip(clusters, widths, strict=True):
        if width:
            groups.setdefault((cluster.cores, width), []).append(cluster)
    return groups
