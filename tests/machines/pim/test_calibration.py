"""The model against the tables measured on the real machine: nothing here was fitted to totals."""

from dataclasses import replace

import numpy as np
import pytest

from onehop.machines.pim import BalancedShapes, Machine, preset, presets, prior_art, upmem_v1a
from onehop.machines.pim.costs import Kernel, core_cycles, interpolate
from onehop.machines.pim.links import broadcast_ns, merge_ns, retrieve_ns
from onehop.machines.pim.presets import (
    ADD_FIT_NS,
    ADDED_ROWS_PER_MS,
    COPIED_ROWS_PER_MS,
    COPY_FIT_NS,
    DMA_BYTES,
    DMA_READ_US,
    DMA_WRITE_US,
    EDGES_PER_MS,
    PULL_GBPS,
    PULL_KB,
)
from onehop.machines.pim.shapes import WorkCounts

CONFIG = upmem_v1a()
MULTIPLYING = Kernel("int32", "int32", multiplies=True)
# Nodes, edges, and the totals in ms that the published cost function gives for 256 columns of int32.
PUBLISHED = {
    "reddit": (232_965, 114_615_892, {(1, 32): 1759, (2, 16): 1753, (4, 8): 1941}),
    "proteins": (132_534, 79_122_504, {(1, 32): 1125, (2, 16): 1123}),
    "arxiv": (169_343, 1_166_243, {(1, 32): 526}),
    "pubmed": (19_717, 88_648, {(1, 32): 61}),
}


def cycles_per_edge(width: int, tasklets: int = 16) -> float:
    edges = 1e6
    shape = (1, 1, tasklets)
    share = np.full(shape, edges / tasklets)
    none = np.zeros(shape)
    plan = replace(prior_art.PUBLISHED, tasklets=tasklets)
    counts = WorkCounts(share, none, none, np.zeros((1, 1)))
    return float(core_cycles(CONFIG, plan, MULTIPLYING, counts, width)[0][0, 0]) / edges


@pytest.mark.parametrize("width", EDGES_PER_MS)
def test_inner_kernel_rate(width: int) -> None:
    measured = CONFIG.core.clock_mhz * 1e3 / EDGES_PER_MS[width]
    assert cycles_per_edge(width) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(("table", "law"), [(DMA_READ_US, "read"), (DMA_WRITE_US, "write")])
def test_transfers_of_a_core(table: tuple[float, ...], law: str) -> None:
    points = getattr(CONFIG.core, f"dma_{law}_cycles")
    for size, us in zip(DMA_BYTES, table, strict=True):
        tolerance = 0.05 if size >= 256 else 0.10
        assert float(interpolate(points, size)) * CONFIG.cycle_ns / 1e3 == pytest.approx(us, rel=tolerance)


@pytest.mark.parametrize("law", ["read", "write"])
def test_published_linear_law_agrees_for_large_transfers(law: str) -> None:
    base = {"read": 77, "write": 61}[law]
    points = getattr(CONFIG.core, f"dma_{law}_cycles")
    for size in (512, 1024, 2048):
        assert float(interpolate(points, size)) == pytest.approx(base + size / 2, rel=0.08)


def test_issue_rate_rises_to_eleven_threads_and_no_further() -> None:
    rates = {t: 1 / cycles_per_edge(32, t) for t in (1, 2, 4, 8, 11, 12, 16, 24)}
    for threads in (1, 2, 4, 8):
        assert rates[threads] / rates[24] == pytest.approx(threads / 11, rel=0.03)
    # Transfers, in which a tasklet waits, take the eleventh thread a little from the full rate.
    assert rates[11] == pytest.approx(rates[24], rel=0.03)
    assert rates[12] == rates[16] == rates[24]


def test_host_links() -> None:
    gigabyte = 1e9
    assert gigabyte / (broadcast_ns(CONFIG, gigabyte) - CONFIG.links.call_us * 1e3) == pytest.approx(43.73)
    for size, rate in zip(PULL_KB, PULL_GBPS, strict=True):
        took = retrieve_ns(CONFIG, np.full(CONFIG.ranks, size * 1024.0), reuse_buffers=False)
        assert size * 1024 * CONFIG.cores / (took - CONFIG.links.call_us * 1e3) == pytest.approx(rate)


@pytest.mark.parametrize(("law", "table"), [("copy_ns", COPIED_ROWS_PER_MS), ("add_ns", ADDED_ROWS_PER_MS)])
def test_merge_rates(law: str, table: dict[int, float]) -> None:
    for width, rows_per_ms in table.items():
        took = merge_ns(CONFIG.links, [rows_per_ms], [width], [law == "add_ns"], threads=1)
        assert took == pytest.approx(1e6, rel=1e-3)


@pytest.mark.parametrize(
    ("law", "fit"), [("copy_ns", COPY_FIT_NS), ("add_ns", ADD_FIT_NS)], ids=["copy", "add"]
)
def test_merge_rates_beyond_the_table_are_those_of_the_published_fit(
    law: str, fit: tuple[float, float]
) -> None:
    for width in (8, 16, 32, 64, 256):
        expected = fit[0] + fit[1] * width
        assert float(interpolate(getattr(CONFIG.links, law), width)) == pytest.approx(expected, rel=0.07)


def simulated_ms(name: str, sp: int, ds: int) -> float:
    nodes, edges, _ = PUBLISHED[name]
    machine, size = Machine(CONFIG), BalancedShapes(nodes, nodes, edges)
    return machine.simulate(size, 256, prior_art.published(sp, ds), "int32").total_ms


@pytest.mark.parametrize(
    ("name", "grid", "total"),
    [(name, grid, total) for name, entry in PUBLISHED.items() for grid, total in entry[2].items()],
)
def test_totals_of_balanced_inputs(name: str, grid: tuple[int, int], total: float) -> None:
    assert simulated_ms(name, *grid) == pytest.approx(total, rel=0.10)


@pytest.mark.parametrize("name", ["arxiv", "pubmed"])
def test_sparse_graphs_want_one_sparse_part(name: str) -> None:
    assert simulated_ms(name, 1, 32) < min(simulated_ms(name, 2, 16), simulated_ms(name, 4, 8))


@pytest.mark.parametrize("name", ["reddit", "proteins"])
def test_dense_graphs_want_two_sparse_parts_by_a_hair(name: str) -> None:
    one, two = simulated_ms(name, 1, 32), simulated_ms(name, 2, 16)
    assert 0.99 * one < two < one < simulated_ms(name, 4, 8)


@pytest.mark.parametrize("name", presets())
def test_every_preset_runs(name: str) -> None:
    report = Machine(preset(name)).simulate(BalancedShapes(10_000, 10_000, 100_000), 64, None, "float32")
    assert report.total_ns > 0
