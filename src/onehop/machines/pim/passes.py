"""Passes of a run, one after another, and the report and timeline that they make."""

from collections.abc import Mapping
from dataclasses import dataclass
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

# Words of the argument block of each core, and two more for each tasklet.
_ARGUMENT_WORDS = 8


@dataclass(slots=True)
class Pass:
    """One pass: each cluster's block of the matrix and columns, and the time and bytes of its phases."""

    block: int
    widths: tuple[int, ...]
    phases: dict[str, float]
    moved: dict[str, int]
    rank_start_ns: np.ndarray
    rank_kernel_ns: np.ndarray
    hidden_merge_ns: float = 0.0


def argument_bytes(config: PimConfig, plan: PimPlan) -> int:
    """Bytes of all cores' arguments of a launch."""
    return 4 * (_ARGUMENT_WORDS + 2 * plan.tasklets) * config.cores


def send_pieces(config: PimConfig, done: list[Pass], sparse_bytes: int) -> None:
    """Charges the matrix to every call: its pieces displace one another, so every call sends them all."""
    firsts = [each for at, each in enumerate(done) if not at or done[at - 1].block != each.block]
    for number, each in enumerate(firsts):
        size = sparse_bytes * (number + 1) // len(firsts) - sparse_bytes * number // len(firsts)
        took = links.push_ns(config, size)
        each.phases["send"] += took
        each.moved["send"] += size
        each.rank_start_ns = each.rank_start_ns + took


def hide_merges(done: list[Pass]) -> None:
    """Overlaps merges of all passes but the last with the kernels of the next, as far as these last."""
    for each, following in pairwise(done):
        each.hidden_merge_ns = min(each.phases["merge"], following.phases["kernel"])
        each.phases["merge"] -= each.hidden_merge_ns


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy times of a run.

    Attributes:
        cores_ns: [cores].
        tasklets_ns: [cores, tasklets]: time that each would take alone.
    """

    cores_ns: np.ndarray
    tasklets_ns: np.ndarray


def report_of(
    config: PimConfig,
    plan: PimPlan,
    kernel: Kernel,
    done: list[Pass],
    needed: Need,
    busy: Busy,
    operations: float,
    figures: Mapping[str, Any],
) -> PimReport:
    """The report of finished passes.

    Args:
        config: The machine.
        plan: The plan.
        kernel: The types of the cores' kernel.
        done: The passes.
        needed: Memory that they need.
        busy: Busy times of all passes together.
        operations: Additions (or comparisons) and multiplications of the sums, for the utilisation.
        figures: What else the report says.
    """
    phases = {name: sum(each.phases[name] for each in done) for name in PHASES}
    keys = ("send", "broadcast", "retrieve", "merge", "padding", "core_to_core")
    moved = {name: sum(each.moved[name] for each in done) for name in keys}
    moved["matrix"] = needed.sparse_bytes
    total = sum(phases.values())
    power = config.power
    host = total - phases["kernel"] + sum(each.hidden_merge_ns for each in done)
    energy = {
        "cores": power.core_w * float(busy.cores_ns.sum()),
        "ranks": power.rank_w * config.ranks * total,
        "host": power.host_w * host + power.host_idle_w * (total - host),
    }
    peak = config.peak_gops(kernel.dtype, kernel.multiplies)
    return PimReport(
        machine=config.name,
        phases_ns=phases,
        bytes=moved,
        energy_nj=energy,
        figures=figures,
        timeline=_timeline(config, done),
        plan=plan,
        dtype=kernel.dtype,
        accumulator=kernel.sums,
        utilisation=operations / phases["kernel"] / peak if phases["kernel"] else 0.0,
        utilisation_total=operations / total / peak if total else 0.0,
        mram_bytes_max=needed.mram_bytes,
        wram_bytes_max=needed.wram_bytes,
        prepare_ns=links.push_ns(config, needed.sparse_bytes) if plan.block_rounds == 1 else 0.0,
        core_busy_ns=busy.cores_ns,
        tasklet_busy_ns=busy.tasklets_ns,
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
