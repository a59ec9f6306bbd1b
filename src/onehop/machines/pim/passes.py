"""Passes of a run, executed one after another, and the report and timeline made from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from onehop.machines.common.trace import Trace
from onehop.machines.pim import links
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.costs import Kernel
from onehop.machines.pim.memory import Need
from onehop.machines.pim.report import PHASES, PimReport
from onehop.plans.pim import PimPlan

# Number of words in the argument block of each core, without two more for each tasklet.
_ARGUMENT_WORDS = 8


@dataclass(slots=True)
class Pass:
    """One pass: each cluster's block of the matrix and its columns, and the time and bytes of its phases."""

    block: int
    widths: tuple[int, ...]
    phases: dict[str, float]
    moved: dict[str, int]
    rank_start_ns: np.ndarray
    rank_kernel_ns: np.ndarray
    hidden_merge_ns: float = 0.0


def send_pieces(config: PimConfig, done: list[Pass], sparse_bytes: int) -> None:
    """Charge sending the matrix to every call: its pieces overwrite one another, so every call sends all."""
    firsts = [each for at, each in enumerate(done) if not at or done[at - 1].block != each.block]
    for number, each in enumerate(firsts):
        size = sparse_bytes * (number + 1) // len(firsts) - sparse_bytes * number // len(firsts)
        took = links.push_ns(config, size)
        each.phases["send"] += took
        each.moved["send"] += size
        each.rank_start_ns = each.rank_start_ns + took


def hide_merges(done: list[Pass]) -> None:
    """Overlap the merge of each pass except the last with the next kernel, for as long as the kernel runs."""
    for each, following in pairwise(done):
        each.hidden_merge_ns = min(each.phases["merge"], following.phases["kernel"])
        each.phases["merge"] -= each.hidden_merge_ns


@dataclass(slots=True)
class Loads:
    """Bytes and times of one pass by rank; a rank transfers for each core as much as its fullest needs.

    Attributes:
        config: The machine.
        plan: The plan.
        item: Bytes of a number of the results.
        broadcast: Whether all cores of a rank get the same features.
        features: [ranks], bytes of features per core.
        others: [ranks], bytes of other data per core.
        results: [ranks], bytes of results per core.
        kernel_ns: [ranks], time of the slowest core.
        rows: Number of rows that the host merges, by their columns and by whether they are added to others.
        useful: Bytes of features, other data and results without padding.
        passed: Bytes that cores add up among themselves.
        cleared: Bytes that the host sets to zero before it merges.
    """

    config: PimConfig
    plan: PimPlan
    item: int
    broadcast: bool
    features: np.ndarray = field(init=False)
    others: np.ndarray = field(init=False)
    results: np.ndarray = field(init=False)
    kernel_ns: np.ndarray = field(init=False)
    rows: dict[tuple[int, bool], float] = field(default_factory=dict)
    useful: float = 0.0
    passed: float = 0.0
    cleared: float = 0.0

    def __post_init__(self) -> None:
        """Set all counts to zero."""
        for name in ("features", "others", "results", "kernel_ns"):
            setattr(self, name, np.zeros(self.config.ranks))

    def merge(self, columns: int, added: bool, rows: float) -> None:
        """Count rows that the host merges."""
        self.rows[columns, added] = self.rows.get((columns, added), 0.0) + rows

    def timed(self, block: int, widths: tuple[int, ...], *, barrier: bool = False) -> Pass:
        """Return the pass with the time and bytes of its phases.

        Args:
            block: The block of the matrix.
            widths: Feature columns of each cluster.
            barrier: Whether no core starts before all cores have their data; if not, each rank starts on its
                own.
        """
        config = self.config
        cores = np.array(config.rank_cores)
        features = self.features * cores
        delivered, other_bytes = float(features.sum()), float((self.others * cores).sum())
        retrieved = float((self.results * cores).sum())
        arguments = 4 * (_ARGUMENT_WORDS + 2 * self.plan.tasklets) * config.cores
        pushed = arguments + other_bytes + (0.0 if self.broadcast else delivered)
        broadcast = delivered if self.broadcast else 0.0
        merge_ns, traffic = self._merged()
        phases = {
            "send": links.push_ns(config, pushed),
            "broadcast": links.broadcast_ns(config, broadcast),
            "retrieve": links.retrieve_ns(config, self.results, self.plan.reuse_buffers),
            "merge": merge_ns,
        }
        loading = phases["send"] + phases["broadcast"]
        start, launched = np.full(config.ranks, loading), config.links.call_us * 1e3
        if barrier:
            phases["kernel"] = float(self.kernel_ns.max()) + launched
        else:
            if delivered:
                shared = phases["broadcast"] if self.broadcast else phases["send"]
                start = start - shared + links.shared_finish(features, delivered / shared)
            adding = self.passed / config.links.core_to_core_gbps if self.passed else 0.0
            phases["kernel"] = max(float((start + self.kernel_ns).max()) - loading, 0.0) + launched + adding
        moved = {
            "send": round(pushed),
            "broadcast": round(broadcast),
            "retrieve": round(retrieved),
            "merge": round(traffic),
            "padding": round(delivered + other_bytes + retrieved - self.useful),
            "core_to_core": round(self.passed),
        }
        return Pass(block, widths, phases, moved, start, self.kernel_ns)

    def _merged(self) -> tuple[float, float]:
        """Return the time of the merge, and the bytes that it moves in the host's memory."""
        plan, rates = self.plan, self.config.links
        sizes = [columns * self.item for columns, _ in self.rows]
        added = [added for _, added in self.rows]
        rows = list(self.rows.values())
        time = links.merge_ns(rates, rows, [size / 4 for size in sizes], added, plan.merge_threads)
        traffic = 0.0
        for size, count in zip(sizes, rows, strict=True):
            # Core by core, each row's slice visits its cache lines separately.
            lines = -(-size // rates.host_line_bytes) * rates.host_line_bytes
            touched = size if plan.merge_order == "row" else lines
            traffic += count * (size + 2 * touched)
        time = max(time, traffic / rates.host_dram_gbps)
        if self.cleared:
            # If the output is new, this is the first touch of its pages.
            fault = 0.0 if plan.reuse_buffers else rates.page_fault_ns / rates.page_bytes
            time += self.cleared * (1 / rates.host_dram_gbps + fault)
        return time, traffic + self.cleared


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a finished run.

    Attributes:
        passes: The run's passes.
        needed: The memory that the passes need.
        cores_ns: [cores]: busy time of each core over all passes.
        tasklets_ns: [cores, tasklets]: time that each tasklet would take alone.
        operations: Number of additions (or comparisons) and multiplications of the sums, for the utilisation.
        figures: Other figures for the report.
    """

    passes: list[Pass]
    needed: Need
    cores_ns: np.ndarray
    tasklets_ns: np.ndarray
    operations: float
    figures: Mapping[str, Any]


def report_of(config: PimConfig, plan: PimPlan, kernel: Kernel, ran: Ran) -> PimReport:
    """Return the report of a run of a kernel under a plan."""
    done, needed = ran.passes, ran.needed
    phases = {name: sum(each.phases[name] for each in done) for name in PHASES}
    keys = ("send", "broadcast", "retrieve", "merge", "padding", "core_to_core")
    moved = {name: sum(each.moved[name] for each in done) for name in keys}
    moved["matrix"] = needed.sparse_bytes
    total = sum(phases.values())
    power = config.power
    host = total - phases["kernel"] + sum(each.hidden_merge_ns for each in done)
    energy = {
        "cores": power.core_w * float(ran.cores_ns.sum()),
        "ranks": power.rank_w * config.ranks * total,
        "host": power.host_w * host + power.host_idle_w * (total - host),
    }
    peak = config.peak_gops(kernel.dtype, kernel.multiplies)
    return PimReport(
        machine=config.name,
        phases_ns=phases,
        bytes=moved,
        energy_nj=energy,
        figures=ran.figures,
        timeline=_timeline(config, done),
        plan=plan,
        dtype=kernel.dtype,
        accumulator=kernel.sums,
        utilisation=ran.operations / phases["kernel"] / peak if phases["kernel"] else 0.0,
        utilisation_total=ran.operations / total / peak if total else 0.0,
        mram_bytes_max=needed.mram_bytes,
        wram_bytes_max=needed.wram_bytes,
        prepare_ns=links.push_ns(config, needed.sparse_bytes) if plan.block_rounds == 1 else 0.0,
        core_busy_ns=ran.cores_ns,
        tasklet_busy_ns=ran.tasklets_ns,
    )


def _timeline(config: PimConfig, done: list[Pass]) -> Trace:
    trace, now = Trace(), 0.0
    for number, each in enumerate(done):
        begin = now
        for name in ("send", "broadcast"):
            trace.add("host/link", name, now, each.phases[name], bytes=each.moved[name], round=number)
            now += each.phases[name]
        for rank, (start, length) in enumerate(zip(each.rank_start_ns, each.rank_kernel_ns, strict=True)):
            if length:
                trace.add(
                    f"ranks/rank {rank}",
                    "kernel",
                    begin + float(start),
                    float(length),
                    round=number,
                    cores=config.rank_cores[rank],
                )
        hidden = done[number - 1].hidden_merge_ns if number else 0.0
        if hidden:
            trace.add("host/merge", "merge", now, hidden, round=number - 1)
        now += each.phases["kernel"]
        trace.add(
            "host/link", "retrieve", now, each.phases["retrieve"], bytes=each.moved["retrieve"], round=number
        )
        now += each.phases["retrieve"]
        trace.add("host/merge", "merge", now, each.phases["merge"], bytes=each.moved["merge"], round=number)
        now += each.phases["merge"]
    return trace
