"""The time of attention on the cores, and the plan for it."""

from dataclasses import replace

import numpy as np

from onehop.errors import ArgumentError, MachineMemoryError
from onehop.machines.base import AttentionSize
from onehop.machines.pim import links
from onehop.machines.pim.attention_costs import (
    Share,
    attention_cycles,
    bank_bytes,
    granule,
    matrix_bytes,
    share,
    working_bytes,
)
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.layout import Cluster, layout, suitable_grids
from onehop.machines.pim.memory import Need, cut_rule
from onehop.machines.pim.numbers import NAMES
from onehop.machines.pim.passes import Busy, Pass, argument_bytes, report_of
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.plans.pim import PimPlan

_TASKLETS = (16, 8, 4, 2, 1)


def clusters_of(config: PimConfig, plan: PimPlan, size: AttentionSize) -> list[Cluster]:
    """The clusters that have columns; where scores need a head's columns, heads are dealt out whole.

    Raises:
        ArgumentError: The plan is none for attention.
    """
    dtype = NAMES[size.dtype]
    wrong = {
        "scheme": (plan.scheme, "paf"),
        "format": (plan.format, "csr"),
        "rounds": (plan.rounds, 1),
        "block_rounds": (plan.block_rounds, 1),
        "hub_bytes": (plan.hub_bytes, 0),
        "dtype": (plan.dtype or dtype, dtype),
        "accumulator": (plan.accumulator or dtype, dtype),
    }
    for name, (given, wanted) in wrong.items():
        if given != wanted:
            raise ArgumentError(f"plan: {name} of attention in {dtype} must be {wanted}, not {given}.")
    step = granule(size)
    placed = layout(config, plan, size.columns // step).clusters
    scaled = (replace(each, begin=each.begin * step, end=each.end * step) for each in placed)
    return [each for each in scaled if each.width]


class _Cut:
    """A graph's work under a plan, and each cluster's share."""

    def __init__(self, config: PimConfig, plan: PimPlan, shapes: Shapes, size: AttentionSize) -> None:
        self.clusters = clusters_of(config, plan, size)
        self.columns = shapes.part_columns(plan.sp, plan.column_cut)
        self.kernel = Kernel(NAMES[size.dtype], NAMES[size.dtype], True)
        self._counts: dict[int, WorkCounts] = {}
        self.counts: list[WorkCounts] = []
        for each in self.clusters:
            if each.cores not in self._counts:
                rule = cut_rule(plan, self.kernel, each.cores)
                self._counts[each.cores] = shapes.counts(plan.sp, plan.column_cut, rule)
            self.counts.append(self._counts[each.cores])
        self.shares: list[Share] = [share(config, size, each.begin, each.end) for each in self.clusters]


def simulate_attention(config: PimConfig, plan: PimPlan, shapes: Shapes, size: AttentionSize) -> PimReport:
    """Simulates attention over every row's edges.

    Transfers: sources' keys and values are broadcast, or sent where a rank holds several clusters; each core
    is sent the queries of its rows and its edges' own numbers. The host joins the parts' averages: with one
    part it copies; with more it scales and adds them, which is taken to cost what adding costs (assumption:
    the memory decides).

    Args:
        config: The machine.
        plan: The plan: "csr", of one round.
        shapes: The work of each core and tasklet.
        size: The attention.

    Raises:
        ArgumentError: The plan does not fit the machine.
        MachineMemoryError: It needs more memory than a core has.
    """
    cut = _Cut(config, plan, shapes, size)
    needed = _need(config, plan, size, cut)
    core = config.core
    for memory, bytes_needed, limit in (
        ("MRAM", needed.mram_bytes, core.mram_bytes),
        ("WRAM", needed.wram_bytes, core.wram_bytes),
    ):
        if bytes_needed > limit:
            hint = "Use a plan with more parts or fewer tasklets, or let the machine choose."
            raise MachineMemoryError(needed.core, memory, bytes_needed, limit, None, hint)
    busy = Busy(np.zeros(config.cores), np.zeros((config.cores, plan.tasklets)))
    done = _pass(config, plan, size, cut, busy) if cut.clusters else None
    operations = 2.0 * shapes.num_edges * size.columns
    figures = {"operator": "attention", "rule": size.rule, "heads": size.heads}
    return report_of(config, plan, cut.kernel, [done] if done else [], needed, busy, operations, figures)


def attention_plan(config: PimConfig, shapes: Shapes, size: AttentionSize) -> PimPlan | None:
    """The fastest plan of all grids, cuts of rows, and numbers of tasklets; None if none fits."""
    best, best_ns = None, float("inf")
    threads = [tasklets for tasklets in _TASKLETS if tasklets <= config.core.threads]
    for sp, ds in suitable_grids(config):
        for balance in ("edge", "row"):
            # Fewer tasklets take longer: only where more do not fit.
            for tasklets in threads:
                plan = PimPlan(sp=sp, ds=ds, core_balance=balance, thread_balance=balance, tasklets=tasklets)
                try:
                    took = simulate_attention(config, plan, shapes, size).total_ns
                except MachineMemoryError:
                    continue
                if took < best_ns:
                    best, best_ns = plan, took
                break
    return best


def _need(config: PimConfig, plan: PimPlan, size: AttentionSize, cut: _Cut) -> Need:
    worst, worst_core, working, sparse = 0, 0, 0, 0
    item = size.dtype.itemsize
    for cluster, counts, own in zip(cut.clusters, cut.counts, cut.shares, strict=True):
        rows, edges = counts.core_rows[cluster.part].max(), counts.core_edges[cluster.part].max()
        most = int(bank_bytes(own, item, cut.columns[cluster.part], rows, edges))
        sparse += int(matrix_bytes(rows, edges)) * cluster.cores
        working = max(working, working_bytes(config, plan, size, own))
        if most > worst:
            worst, worst_core = most, cluster.first_core
    return Need(worst, working, worst_core, sparse)


def _pass(config: PimConfig, plan: PimPlan, size: AttentionSize, cut: _Cut, busy: Busy) -> Pass:
    """Each phase of the one pass."""
    rank_cores = np.array(config.rank_cores)
    sources, own_data, blocks, kernel_ns = (np.zeros(config.ranks) for _ in range(4))
    useful = 0.0
    item = size.dtype.itemsize
    merges: dict[tuple[int, bool], float] = {}
    cycles: dict[tuple[int, Share], tuple[np.ndarray, np.ndarray]] = {}
    for cluster, counts, own in zip(cut.clusters, cut.counts, cut.shares, strict=True):
        part, key = cluster.part, (cluster.cores, own)
        if key not in cycles:
            cycles[key] = attention_cycles(config, plan, size, own, counts)
        of_cores, of_tasklets = (each[part] * config.cycle_ns for each in cycles[key])
        cores = slice(cluster.first_core, cluster.first_core + cluster.cores)
        busy.cores_ns[cores] += of_cores
        busy.tasklets_ns[cores] += of_tasklets
        rows, edges = counts.core_rows[part], counts.core_edges[part]
        all_rows = float(rows.sum())
        ranks = slice(cluster.rank, cluster.rank + cluster.ranks)
        held = cut.columns[part] * (own.key + own.value)
        for of_rank, most in (
            (sources, held),
            (own_data, rows.max() * own.query + edges.max() * own.edge),
            (blocks, rows.max() * own.result),
            (kernel_ns, of_cores.max()),
        ):
            of_rank[ranks] = np.maximum(of_rank[ranks], most)
        useful += float(cut.columns[part]) * own.useful_source * cluster.cores
        useful += all_rows * (own.useful_query + own.useful_result) + float(edges.sum()) * own.edge
        slot = (own.useful_result // item, part > 0)
        merges[slot] = merges.get(slot, 0.0) + all_rows

    broadcast = plan.sp * plan.ds <= config.ranks
    features = sources * rank_cores
    delivered = float(features.sum())
    each_own = float((own_data * rank_cores).sum())
    pushed = argument_bytes(config, plan) + each_own + (0.0 if broadcast else delivered)
    retrieved = float((blocks * rank_cores).sum())
    merged = sum(count * width * item for (width, _), count in merges.items())
    line = config.links.host_line_bytes
    touched = sum(count * 2 * (-(-width * item // line) * line) for (width, _), count in merges.items())
    merge_ns = links.merge_ns(
        config.links,
        list(merges.values()),
        [width * item / 4 for width, _ in merges],
        [added for _, added in merges],
        plan.merge_threads,
    )
    phases = {
        "send": links.push_ns(config, pushed),
        "broadcast": links.broadcast_ns(config, delivered if broadcast else 0.0),
        "retrieve": links.retrieve_ns(config, blocks, plan.reuse_buffers),
        "merge": max(merge_ns, (merged + touched) / config.links.host_dram_gbps),
    }
    loading = phases["send"] + phases["broadcast"]
    # A barrier before the kernels: every core waits for its queries, which come last.
    phases["kernel"] = float(kernel_ns.max()) + config.links.call_us * 1e3
    moved = {
        "send": round(pushed),
        "broadcast": round(delivered if broadcast else 0.0),
        "retrieve": round(retrieved),
        "merge": round(merged + touched),
        "padding": round(delivered + each_own + retrieved - useful),
        "core_to_core": 0,
    }
    return Pass(0, (size.columns,), phases, moved, np.full(config.ranks, loading), kernel_ns)
