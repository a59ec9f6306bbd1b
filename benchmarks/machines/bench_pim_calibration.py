"""The near-bank machine's model beside the tables measured on the real one.

    python -m benchmarks.machines.bench_pim_calibration
        [--json benchmarks/results/machines/pim_calibration.json]

Tables measured on UPMEM: transfers of a core, edges done by a core, merge of the host (the constants of
PyGim's repository), and, held out, transfers by few cores (uPIMulator's data). Totals: what PyGim's cost
function gives for balanced graphs, 256 columns of int32; it shares all constants, so this tests their use.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np

from benchmarks import columns
from benchmarks.harness import Benchmark, Options, Row
from onehop import MachineMemoryError
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
from onehop.tables import Table

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
GRIDS = (1, 2, 4, 8, 16, 32)
MEMORY = columns.of("plan; MiB | need_mib | {:.1f}; fits")
LINKS = columns.of("transfers | 0; points | 1/points; R2 | 1/r2 | {:.3f}; mean error | 1/mean_error | {:.0%}")


def kernel_cycles(width: int, tasklets: int) -> float:
    """Cycles of a core for one edge, without rows."""
    edges = np.full((1, 1, tasklets), 1e6 / tasklets)
    counts = WorkCounts(edges, np.zeros_like(edges), np.zeros_like(edges), np.zeros((1, 1)))
    plan = replace(prior_art.PUBLISHED, tasklets=tasklets)
    return (
        float(core_cycles(MACHINE.config, plan, Kernel("int32", "int32", True), counts, width)[0][0, 0]) / 1e6
    )


def line(what: str, at: object, evidence: str, measured: float, model: float) -> Row:
    """One comparison."""
    error = model / measured - 1
    return {
        "what": what, "at": at, "evidence": evidence, "measured": measured, "model": model,
        "relative_error": error,
    }  # fmt: skip


def rows(options: Options) -> Iterator[Row]:
    """Every comparison."""
    core, links, mhz = MACHINE.config.core, MACHINE.config.links, MACHINE.config.core.clock_mhz
    for name, table, points in (
        ("read", DMA_READ_US, core.dma_read_cycles),
        ("write", DMA_WRITE_US, core.dma_write_cycles),
    ):
        for size, us in zip(DMA_BYTES, table, strict=True):
            model = float(interpolate(points, size)) / mhz
            yield line(f"{name} of a core, us", f"{size} B", ITSELF, us, model)
    for width, rate in EDGES_PER_MS.items():
        evidence = FITTED if width >= 8 else HELD_OUT
        model = mhz * 1e3 / kernel_cycles(width, 16)
        yield line("edges a ms and core", f"width {width}", evidence, rate, model)
    for threads in (1, 2, 4, 8, 11, 12, 16, 24):
        rate = min(1.0, threads / core.reissue_cycles)
        issued = kernel_cycles(32, 24) / kernel_cycles(32, threads)
        yield line("share of the issue rate, T/11", f"{threads} threads", LAW, rate, issued)
    took = broadcast_ns(MACHINE.config, 8e9)
    yield line("broadcast, GB/s delivered", "8 GB", ITSELF, BROADCAST_GBPS, 8e9 / took)
    for kilobytes, rate in zip(PULL_KB, PULL_GBPS, strict=True):
        block = kilobytes * 1024.0
        took = retrieve_ns(MACHINE.config, np.full(MACHINE.config.ranks, block), reuse_buffers=False)
        pulled = block * MACHINE.config.cores / took
        yield line("pulled from all cores, GB/s", f"{kilobytes} KB each", ITSELF, rate, pulled)
    for name, rates, points in (
        ("copied", COPIED_ROWS_PER_MS, links.copy_ns),
        ("added", ADDED_ROWS_PER_MS, links.add_ns),
    ):
        for width, rate in rates.items():
            model = 1e6 / float(interpolate(points, width))
            yield line(f"rows {name} a ms by the host", f"width {width}", ITSELF, rate, model)
    for graph, (nodes, edges, totals) in TOTALS.items():
        for grid, total in totals.items():
            model = total_ms(nodes, edges, int(grid.split("x")[0]))
            yield line("published cost function, ms", f"{graph} {grid}", SAME, total, model)


def total_ms(nodes: int, edges: int, sp: int) -> float:
    """The total of a balanced graph in the published plan with a grid of ``sp`` by 32 / ``sp``."""
    plan = prior_art.published(sp, 32 // sp)
    return MACHINE.simulate(BalancedShapes(nodes, nodes, edges), 256, plan, "int32").total_ms


def winners() -> dict[str, str]:
    """The best grid of each graph."""
    best = {}
    for graph, (nodes, edges, _) in TOTALS.items():
        totals = {f"{sp}x{32 // sp}": total_ms(nodes, edges, sp) for sp in GRIDS}
        best[graph] = min(totals, key=totals.__getitem__)
    return best


def memory() -> list[Row]:
    """What fits of AmazonProducts, width 256, int32."""
    configs = {f"{sp}x{32 // sp}": (prior_art.published(sp, 32 // sp), MACHINE.config) for sp in GRIDS}
    for ranks in (8, 16, 32):
        config = MACHINE.config.with_(ranks=ranks)
        configs[f"grande, {ranks} ranks"] = (prior_art.grande(config), config)
    facts = []
    for name, (plan, config) in configs.items():
        try:
            need, fits = Machine(config).simulate(AMAZON, 256, plan, "int32").mram_bytes_max, True
        except MachineMemoryError as error:
            need, fits = error.need_bytes, False
        facts.append({"plan": name, "need_mib": need / 2**20, "fits": fits})
    return facts


def others(options: Options, rows: list[Row]) -> Row:
    """What is known besides, once all comparisons are there."""
    return {
        "held_out": {name: asdict(each) for name, each in held_out(MACHINE.config).items()},
        "constants": {name: tuple(source) for name, source in provenance(MACHINE.config).items()},
        "winners": winners(),
        "amazon_products": memory(),
    }


BENCHMARK = Benchmark(
    "benchmarks/machines/bench_pim_calibration.py",
    rows,
    "figure | what; at; evidence; there | measured | {:.5g}; model | model | {:.5g}; "
    "error | relative_error | {:+.1%}",
    key="calibration",
    threads=False,
    finish=others,
    notes=lambda options, rows: [
        Table(MEMORY, options.noted["amazon_products"], "AmazonProducts, of 64 MiB a bank"),
        Table(LINKS, list(options.noted["held_out"].items()), "Held-out transfers"),
        f"Best grids: {options.noted['winners']}",
    ],
)

if __name__ == "__main__":
    BENCHMARK.main()
