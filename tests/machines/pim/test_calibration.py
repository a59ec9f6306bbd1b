"""The model against the tables measured on the real machine: nothing here was fitted to totals."""

import pytest

from onehop.machines.pim import BalancedShapes, Machine, PimPlan, presets, prior_art, upmem_v1a
from onehop.machines.pim.costs import Kernel, core_cycles, interpolate
from onehop.machines.pim.links import broadcast_ns
from onehop.machines.pim.presets import (
    ADDED_ROWS_PER_MS,
    COPIED_ROWS_PER_MS,
    DMA_BYTES,
    DMA_READ_US,
    DMA_WRITE_US,
    EDGES_PER_MS,
    PULL_GBPS,
    PULL_KB,
)
from onehop.machines.pim.shapes import Counts

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
    import numpy as np

    edges = 1e6
    shape = (1, 1, tasklets)
    share = np.full(shape, edges / tasklets)
    none = np.zeros(shape)
    plan = PimPlan(tasklets=tasklets, unit_weights=False)
    counts = Counts(share, none, none, np.zeros((1, 1)))
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
    for threads in (2, 4, 8):
        assert rates[threads] / rates[1] == pytest.approx(threads, rel=0.05)
    assert rates[24] == pytest.approx(rates[16], rel=0.01)
    assert rates[16] > 0.99 * rates[11] * 0.9


def test_host_links() -> None:
    gigabyte = 1e9
    assert gigabyte / (broadcast_ns(CONFIG, gigabyte) - CONFIG.links.call_us * 1e3) == pytest.approx(43.73)
    for size, rate in zip(PULL_KB, PULL_GBPS, strict=True):
        assert float(interpolate(CONFIG.links.pull_gbps, size)) == rate


@pytest.mark.parametrize(("law", "table"), [("copy_ns", COPIED_ROWS_PER_MS), ("add_ns", ADDED_ROWS_PER_MS)])
def test_merge_rates(law: str, table: dict[int, float]) -> None:
    base, slope = getattr(CONFIG.links, law)
    for width, rows_per_ms in table.items():
        assert 1e6 / (base + slope * width) == pytest.approx(rows_per_ms, rel=0.10)


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
def test_dense_graphs_hardly_tell_one_from_two_sparse_parts(name: str) -> None:
    one, two = simulated_ms(name, 1, 32), simulated_ms(name, 2, 16)
    assert one == pytest.approx(two, rel=0.01)
    assert max(one, two) < simulated_ms(name, 4, 8)


@pytest.mark.parametrize("name", presets())
def test_every_preset_runs(name: str) -> None:
    from onehop.machines.pim import preset

    report = Machine(preset(name)).simulate(BalancedShapes(10_000, 10_000, 100_000), 64, None, "float32")
    assert report.total_ns > 0
