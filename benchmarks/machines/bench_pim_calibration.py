"""The near-bank machine's model beside the tables measured on the real one.

    python benchmarks/machines/bench_pim_calibration.py
        [--json benchmarks/results/machines/pim_calibration.json]

Tables measured on UPMEM: transfers of a core, edges done by a core, merge of the host (the constants of
PyGim's repository), and, held out, transfers by few cores (uPIMulator's data). Totals: what PyGim's cost
function gives for balanced graphs, 256 columns of int32; it shares all constants, so this tests their use.
"""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from onehop import MachineMemoryError
from onehop.bench import command
from onehop.machines.pim import BalancedShapes, Machine, prior_art, upmem_v1a
from onehop.machines.pim.calibration import held_out
from onehop.machines.pim.costs import Kernel, core_cycles, interpolate
from onehop.machines.pim.links import broadcast_ns, retrieve_ns
from onehop.machines.pim.presets import (
    ADDED_ROWS_PER_MS,
    BROADCAST_GBPS,
    COPIED_ROWS_PER_MS,
    DMA_BYTES,
    DMA_READ_US,
    DMA_WRITE_US,
    EDGES_PER_MS,
    PULL_GBPS,
    PULL_KB,
)
from onehop.machines.pim.provenance import provenance
from onehop.machines.pim.shapes import WorkCounts

MACHINE = Machine(upmem_v1a())
# Evidence of a comparison.
ITSELF = "measured: the constant"
FITTED = "measured: fitted"
HELD_OUT = "measured: held out"
LAW = "derived: a law"
SAME = "derived: same constants"
# Nodes, edges, and total in ms by grid.
TOTALS = {
    "Reddit": (232_965, 114_615_892, {"1x32": 1759, "2x16": 1753, "4x8": 1941, "32x1": 5195}),
    "ogbn-proteins": (132_534, 79_122_504, {"1x32": 1125, "2x16": 1123}),
    "ogbn-arxiv": (169_343, 1_166_243, {"1x32": 526}),
    "PubMed": (19_717, 88_648, {"1x32": 61}),
}
AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)


def kernel_cycles(width: int, tasklets: int) -> float:
    """Cycles of a core for one edge, without rows."""
    edges = np.full((1, 1, tasklets), 1e6 / tasklets)
    counts = WorkCounts(edges, np.zeros_like(edges), np.zeros_like(edges), np.zeros((1, 1)))
    plan = replace(prior_art.PUBLISHED, tasklets=tasklets)
    return (
        float(core_cycles(MACHINE.config, plan, Kernel("int32", "int32", True), counts, width)[0][0, 0]) / 1e6
    )


def line(what: str, at: object, evidence: str, measured: float, model: float) -> dict[str, Any]:
    """One comparison, printed."""
    error = model / measured - 1
    print(f"{what:34} {at!s:>16} {evidence:22} {measured:>12.5g} {model:>12.5g} {100 * error:>+8.1f} %")
    return {
        "what": what,
        "at": at,
        "evidence": evidence,
        "measured": measured,
        "model": model,
        "relative_error": error,
    }


def calibration() -> list[dict[str, Any]]:
    """Every comparison."""
    core, links, mhz = MACHINE.config.core, MACHINE.config.links, MACHINE.config.core.clock_mhz
    rows = []
    for name, table, points in (
        ("read", DMA_READ_US, core.dma_read_cycles),
        ("write", DMA_WRITE_US, core.dma_write_cycles),
    ):
        for size, us in zip(DMA_BYTES, table, strict=True):
            rows.append(
                line(f"{name} of a core, us", f"{size} B", ITSELF, us, float(interpolate(points, size)) / mhz)
            )
    for width, rate in EDGES_PER_MS.items():
        rows.append(
            line(
                "edges a ms and core",
                f"width {width}",
                FITTED if width >= 8 else HELD_OUT,
                rate,
                mhz * 1e3 / kernel_cycles(width, 16),
            )
        )
    for threads in (1, 2, 4, 8, 11, 12, 16, 24):
        rate = min(1.0, threads / core.reissue_cycles)
        issued = kernel_cycles(32, 24) / kernel_cycles(32, threads)
        rows.append(line("share of the issue rate, T/11", f"{threads} threads", LAW, rate, issued))
    took = broadcast_ns(MACHINE.config, 8e9)
    rows.append(line("broadcast, GB/s delivered", "8 GB", ITSELF, BROADCAST_GBPS, 8e9 / took))
    for kilobytes, rate in zip(PULL_KB, PULL_GBPS, strict=True):
        block = kilobytes * 1024.0
        took = retrieve_ns(MACHINE.config, np.full(MACHINE.config.ranks, block), reuse_buffers=False)
        pulled = block * MACHINE.config.cores / took
        rows.append(line("pulled from all cores, GB/s", f"{kilobytes} KB each", ITSELF, rate, pulled))
    for name, table, points in (
        ("copied", COPIED_ROWS_PER_MS, links.copy_ns),
        ("added", ADDED_ROWS_PER_MS, links.add_ns),
    ):
        for width, rate in table.items():
            rows.append(
                line(
                    f"rows {name} a ms by the host",
                    f"width {width}",
                    ITSELF,
                    rate,
                    1e6 / float(interpolate(points, width)),
                )
            )
    for graph, (nodes, edges, totals) in TOTALS.items():
        for grid, total in totals.items():
            sp, ds = map(int, grid.split("x"))
            size = BalancedShapes(nodes, nodes, edges)
            report = MACHINE.simulate(size, 256, prior_art.published(sp, ds), "int32")
            rows.append(line("published cost function, ms", f"{graph} {grid}", SAME, total, report.total_ms))
    return rows


def links() -> dict[str, dict[str, Any]]:
    """The errors of transfers against held-out measurements, printed."""
    found = {}
    for name, each in held_out(MACHINE.config).items():
        r2 = "" if each.r2 is None else f"R2 {each.r2:.3f}, "
        print(f"{name}: {each.points} held out, {r2}mean error {100 * each.mean_error:.0f} %")
        found[name] = asdict(each)
    return found


def winners() -> dict[str, str]:
    """The best grid of each graph."""
    best = {}
    for graph, (nodes, edges, _) in TOTALS.items():
        size = BalancedShapes(nodes, nodes, edges)
        totals = {
            f"{sp}x{32 // sp}": MACHINE.simulate(
                size, 256, prior_art.published(sp, 32 // sp), "int32"
            ).total_ms
            for sp in (1, 2, 4, 8, 16, 32)
        }
        best[graph] = min(totals, key=totals.__getitem__)
        print(
            f"best grid of {graph}: {best[graph]}  {', '.join(f'{g} {t:.0f} ms' for g, t in totals.items())}"
        )
    return best


def memory() -> list[dict[str, Any]]:
    """What fits of AmazonProducts, width 256, int32."""
    plans = {f"{sp}x{32 // sp}": prior_art.published(sp, 32 // sp) for sp in (1, 2, 4, 8, 16, 32)}
    facts = []
    for name, plan, config in [
        *((name, plan, MACHINE.config) for name, plan in plans.items()),
        *((f"grande, {r} ranks", None, MACHINE.config.with_(ranks=r)) for r in (8, 16, 32)),
    ]:
        plan = prior_art.grande(config) if plan is None else plan
        try:
            need, fits = Machine(config).simulate(AMAZON, 256, plan, "int32").mram_bytes_max, True
        except MachineMemoryError as error:
            need, fits = error.need_bytes, False
        print(
            f"AmazonProducts {name:>18}: {need / 2**20:6.1f} MiB of 64, {'fits' if fits else 'does not fit'}"
        )
        facts.append({"plan": name, "need_mib": need / 2**20, "fits": fits})
    return facts


def main() -> None:
    """Prints and writes everything."""
    parser = command.parser(__doc__)
    options = command.read(parser)
    print(f"{'':34} {'':>16} {'':22} {'there':>12} {'model':>12} {'error':>10}")
    found = {
        "calibration": calibration(),
        "held_out": links(),
        "constants": {name: tuple(source) for name, source in provenance(MACHINE.config).items()},
        "winners": winners(),
        "amazon_products": memory(),
    }
    command.write(options, "benchmarks/machines/bench_pim_calibration.py", found)


if __name__ == "__main__":
    main()
