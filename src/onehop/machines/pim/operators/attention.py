"""Attention on the cores: its time, the plan for it, and its numbers."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from onehop import calls
from onehop.errors import ArgumentError, MachineMemoryError
from onehop.kernels.cpu.attention import PreparedAttention
from onehop.machines.base import AttentionSize
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.counted import GraphShapes
from onehop.machines.pim.memory import Need, cut_rule
from onehop.machines.pim.numbers import NAMES
from onehop.machines.pim.operators.attention_costs import (
    Share,
    attention_cycles,
    bank_bytes,
    granule,
    matrix_bytes,
    share_of,
    working_bytes,
)
from onehop.machines.pim.operators.base import parts_of
from onehop.machines.pim.operators.extremum import Extremum
from onehop.machines.pim.passes import Loads, Pass, Ran, report_of
from onehop.machines.pim.report import PimReport
from onehop.machines.pim.scheme import Cluster, layout, suitable_grids
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.plans import CpuPlan
from onehop.plans.pim import PimPlan

_TASKLETS = (16, 8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention over each row's edges: scores, softmax and weighted sums on the cores.

    Attributes:
        size: Size of the attention.
        call: The call, with CPU tensors of float32 or float64, without dropout; None if only the cost is
            needed.
    """

    size: AttentionSize
    call: calls.Attention | None = None

    @staticmethod
    def refuse(config: PimConfig, size: AttentionSize, machine_dtype: str | None) -> str | None:
        """Return why a machine cannot run this attention over any graph, or None if it can over some."""
        reason = Extremum.refuse(config, size.dtype, machine_dtype)
        if reason is None and size.edge_vectors:
            return "has no attention whose edges have features: they would be a row an edge in its banks"
        return reason

    def plan(self, config: PimConfig, shapes: Shapes) -> PimPlan | None:
        """Return the fastest plan over all grids, row cuts and numbers of tasklets; None if none fits."""
        best, best_ns = None, float("inf")
        threads = [tasklets for tasklets in _TASKLETS if tasklets <= config.core.threads]
        for sp, ds in suitable_grids(config):
            for balance in ("edge", "row"):
                # Fewer tasklets take longer, so they are tried only if more do not fit.
                for tasklets in threads:
                    plan = PimPlan(
                        sp=sp, ds=ds, core_balance=balance, thread_balance=balance, tasklets=tasklets
                    )
                    try:
                        took = self.cost(config, plan, shapes).total_ns
                    except MachineMemoryError:
                        continue
                    if took < best_ns:
                        best, best_ns = plan, took
                    break
        return best

    def cost(self, config: PimConfig, plan: PimPlan, shapes: Shapes) -> PimReport:
        """Return the report of a run under a "csr" plan of one round; see :class:`.base.Operator`.

        Transfers: the host broadcasts the sources' keys and values, or sends them if a rank holds several
        clusters. It sends each core the queries of its rows and its edges' own numbers. The host joins the
        parts' averages: with one part it copies them; with more it scales and adds them, which is assumed to
        cost as much as adding, because memory is the bottleneck.
        """
        size = self.size
        cut = _Cut(config, plan, shapes, size)
        needed = cut.need()
        excess = needed.excess(config.core)
        if excess is not None:
            hint = "Use a plan with more parts or fewer tasklets, or let the machine choose."
            raise MachineMemoryError(needed.core, *excess, None, hint)
        busy = np.zeros(config.cores), np.zeros((config.cores, plan.tasklets))
        done = [cut.timed(*busy)] if cut.clusters else []
        operations = 2.0 * shapes.num_edges * size.columns
        figures = {"operator": "attention", "rule": size.rule, "heads": size.heads}
        return report_of(config, plan, cut.kernel, Ran(done, needed, *busy, operations, figures))

    @torch.no_grad()
    def execute(self, config: PimConfig, plan: PimPlan, shapes: GraphShapes) -> tuple[Tensor, Tensor]:
        """Return the first two results of the call, [num_dst, H, V] and [num_dst, 2, H]."""
        call = self.call
        assert call is not None, "an attention that is executed has operands"
        value = call.value
        shape = (shapes.num_dst, call.heads, value.size(2))
        out = torch.zeros(shape, dtype=value.dtype, device="cpu")
        largest = torch.full(shape[:2], -torch.inf, dtype=value.dtype, device="cpu")
        sums = torch.zeros(shape[:2], dtype=value.dtype, device="cpu")
        if not value.numel():
            # Kernels need at least one column.
            return out, value.new_zeros(shape[0], 2, shape[1])
        for part in parts_of(plan, shapes):
            sources = slice(part.first, part.last)
            part_call = call._replace(
                value=value[sources].contiguous(),
                key=None if call.key is None else call.key[sources].contiguous(),
                edge=None if call.edge is None else call.edge[part.edges],
                mask=None if call.mask is None else call.mask[part.edges],
                graph=part.graph.number,
                edges=part.graph.num_edges,
                with_weights=False,
            )
            averages, softmax, _ = PreparedAttention(part.graph, CpuPlan(), part_call).run(part_call)
            filled = part.graph.in_degrees > 0
            top = softmax[filled, 0]
            # Scale both sides to the larger maximum; rows without edges so far have nothing to scale.
            higher = torch.maximum(largest[filled], top)
            before = sums[filled] * torch.exp(largest[filled] - higher)
            now = 1 / softmax[filled, 1] * torch.exp(top - higher)
            both = before + now
            earlier, added = (before / both).unsqueeze(-1), (now / both).unsqueeze(-1)
            out[filled] = out[filled] * earlier + averages[filled] * added
            largest[filled], sums[filled] = higher, both
        empty = (shapes.graph.in_degrees == 0).unsqueeze(1)
        return out, torch.stack([largest.masked_fill_(empty, 0), (1 / sums).masked_fill_(empty, 0)], 1)


def clusters_of(config: PimConfig, plan: PimPlan, size: AttentionSize) -> list[Cluster]:
    """Return the clusters that have columns; if scores need a head's columns, heads are not split.

    Raises:
        ArgumentError: The plan is not usable for attention.
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
    for name, (value, required) in wrong.items():
        if value != required:
            raise ArgumentError(f"plan: {name} of attention in {dtype} must be {required}, not {value}.")
    step = granule(size)
    placed = layout(config, plan, size.columns // step).clusters
    scaled = (replace(each, begin=each.begin * step, end=each.end * step) for each in placed)
    return [each for each in scaled if each.width]


class _Cut:
    """A graph's work under a plan, and each cluster's share."""

    def __init__(self, config: PimConfig, plan: PimPlan, shapes: Shapes, size: AttentionSize) -> None:
        self.config, self.plan, self.size = config, plan, size
        self.clusters = clusters_of(config, plan, size)
        self.columns = shapes.part_columns(plan.sp, plan.column_cut)
        self.kernel = Kernel(NAMES[size.dtype], NAMES[size.dtype], True)
        self._counts: dict[int, WorkCounts] = {}
        self.counts: list[WorkCounts] = []
        for cluster in self.clusters:
            if cluster.cores not in self._counts:
                rule = cut_rule(plan, self.kernel, cluster.cores)
                self._counts[cluster.cores] = shapes.counts(plan.sp, plan.column_cut, rule)
            self.counts.append(self._counts[cluster.cores])
        self.shares: list[Share] = [share_of(config, size, each.begin, each.end) for each in self.clusters]

    def need(self) -> Need:
        """Return the memory of the core that needs most."""
        worst, worst_core, working = 0, 0, 0
        # By rank: a rank transfers for each core as much as its fullest core needs.
        sparse = np.zeros(self.config.ranks, dtype=np.int64)
        item = self.size.dtype.itemsize
        for cluster, counts, share in zip(self.clusters, self.counts, self.shares, strict=True):
            rows, edges = counts.core_rows[cluster.part].max(), counts.core_edges[cluster.part].max()
            most = int(bank_bytes(share, item, self.columns[cluster.part], rows, edges))
            ranks = slice(cluster.rank, cluster.rank + cluster.ranks)
            sparse[ranks] = np.maximum(sparse[ranks], matrix_bytes(rows, edges))
            working = max(working, working_bytes(self.config, self.plan, self.size, share))
            if most > worst:
                worst, worst_core = most, cluster.first_core
        return Need(worst, working, worst_core, int(sparse @ np.array(self.config.rank_cores)))

    def timed(self, cores_ns: np.ndarray, tasklets_ns: np.ndarray) -> Pass:
        """Return each phase of the single pass; add busy times to [cores] and [cores, tasklets]."""
        config, plan, size = self.config, self.plan, self.size
        item = size.dtype.itemsize
        # In every merge order, the host touches its cache lines core by core.
        by_core = replace(plan, merge_order="block")
        loads = Loads(config, by_core, item, broadcast=plan.sp * plan.ds <= config.ranks)
        cycles: dict[tuple[int, Share], tuple[np.ndarray, np.ndarray]] = {}
        for cluster, counts, share in zip(self.clusters, self.counts, self.shares, strict=True):
            part, key = cluster.part, (cluster.cores, share)
            if key not in cycles:
                cycles[key] = attention_cycles(config, plan, size, share, counts)
            of_cores, of_tasklets = (each[part] * config.cycle_ns for each in cycles[key])
            cores = slice(cluster.first_core, cluster.first_core + cluster.cores)
            cores_ns[cores] += of_cores
            tasklets_ns[cores] += of_tasklets
            rows, edges = counts.core_rows[part], counts.core_edges[part]
            all_rows, columns = float(rows.sum()), self.columns[part]
            ranks = slice(cluster.rank, cluster.rank + cluster.ranks)
            for of_rank, most in (
                (loads.features, columns * (share.key + share.value)),
                (loads.others, rows.max() * share.query + edges.max() * share.edge),
                (loads.results, rows.max() * share.result),
                (loads.kernel_ns, of_cores.max()),
            ):
                of_rank[ranks] = np.maximum(of_rank[ranks], most)
            loads.useful += float(columns) * share.useful_source * cluster.cores
            of_rows = all_rows * (share.useful_query + share.useful_result)
            loads.useful += of_rows + float(edges.sum()) * share.edge
            loads.merge(share.useful_result // item, part > 0, all_rows)
        # Every core waits for its queries, which are sent last.
        return loads.timed(0, (size.columns,), barrier=True)
