"""Figures of the machine itself: its host, the memory of a core, ranks, and constants against measurements.

PyTorch's time on the host is bounded by the host's memory. Constants are compared with data to which they
were fitted, with held-out data, or with a cost function that uses the same constants.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from onehop.errors import MachineMemoryError
from onehop.machines.pim import BalancedShapes, Machine, PimConfig, PimPlan, prior_art, upmem_v1a
from onehop.machines.pim.calibration import held_out
from onehop.machines.pim.combination import KINDS, Network
from onehop.machines.pim.costs import Kernel, core_cycles
from onehop.machines.pim.presets import EDGES_PER_MS
from onehop.machines.pim.provenance import BOUNDS
from onehop.machines.pim.report import PHASES
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.machines.pim.vary import varied
from onehop.reproduce.pygim.comparison import LAYERS, SUMMARIES, Case, open_winner, whole
from onehop.reproduce.pygim.schemes import DTYPE, PUBLISHED, THREADS, WIDTH, base, named
from onehop.reproduce.tables import Chart, Row, plain, row

# The abstract: mean and best over PyTorch on the host.
_PAPER_SPEEDUP, _PAPER_ENERGY = (3.04, 3.44), (1.55, 1.75)
_INDEX_BYTES, _ITEM_BYTES = 4, 4
_AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)
RANKS = (4, 8, 16, 32)
# Two sockets of 85 W, the thermal design power of the Xeon Silver 4215, which is in the class of the paper's
# processor.
_FULL_LOAD_W = 170.0
_SLOWER = (
    "For the published value PyTorch would have to read slower than the host's memory streams, or the cores "
    "be faster than their published transfers and instructions say."
)
# Widths at which the instructions per edge and per element were fitted.
_FITTED = (8, 16, 32)
# Nodes, edges, and the published cost function's results for balanced graphs, 256 columns of int32, in ms.
_COSTS = {
    "Reddit": (232_965, 114_615_892, {(1, 32): 1759, (2, 16): 1753, (4, 8): 1941, (32, 1): 5195}),
    "ogbn-proteins": (132_534, 79_122_504, {(1, 32): 1125, (2, 16): 1123}),
    "ogbn-arxiv": (169_343, 1_166_243, {(1, 32): 526}),
    "PubMed": (19_717, 88_648, {(1, 32): 61}),
}


def sum_ns(config: PimConfig, shapes: Shapes, cached: bool) -> float:
    """Return the time of a float32 sum on the machine's host, at the speed of its memory.

    Each row of features is read once if ``cached``, else once per edge.
    """
    row = WIDTH * _ITEM_BYTES
    rows = shapes.num_src if cached else shapes.num_edges
    # An index and a value per edge, the rows, the results.
    moved = shapes.num_edges * (_INDEX_BYTES + _ITEM_BYTES) + (rows + shapes.num_dst) * row
    return moved / config.links.host_dram_gbps


def over_host(cases: Sequence[Case], shapes: Sequence[Shapes]) -> list[Row]:
    """Return speed-up and energy saving over PyTorch on the host."""
    one_thread = [case for case in cases if case.threads == THREADS[0]]
    rows = []
    for quantity, paper, energy in (("time", _PAPER_SPEEDUP, False), ("energy", _PAPER_ENERGY, True)):
        values = {cached: list(_ratios(one_thread, shapes, cached, energy)) for cached in (False, True)}
        for (name, over), published in zip(SUMMARIES.items(), paper, strict=True):
            bounds = [over(ratios) for each in values.values() for ratios in each]
            note = (
                "The host reads a row for every edge at 23.1 GB/s; with rows in its caches it may be as fast "
                "as the lower end says. Floats there, integers on the cores."
            )
            if energy:
                note += f" The host draws 70 to {_FULL_LOAD_W:g} W; the paper's is not known."
            figure = f"inference, {quantity} of PyTorch on the host over {PUBLISHED}, {name}"
            text = note + open_winner(bounds)
            rows.append(row(figure, "x", text, bounds, published, headline=True, otherwise=_SLOWER))
    return rows


def _ratios(
    cases: Sequence[Case], shapes: Sequence[Shapes], cached: bool, energy: bool
) -> Iterator[list[float]]:
    """Yield host over machine for all graphs and models: at the preset, then at other rates of its host."""
    config = base().config
    rates = (config.host.product_gflops, *BOUNDS["product_gflops"])
    # 70 W were measured during transfers, but a sparse product keeps all cores busy.
    powers = (config.power.host_w, _FULL_LOAD_W) if energy else (1.0,)
    for power, rate in product(powers, rates):
        hosted = config.with_(product_gflops=rate)
        ratios = []
        for case, sized in zip(cases, shapes, strict=True):
            if PUBLISHED not in case.base.reports:
                continue
            for kind in KINDS:
                floats = Network(kind, case.nodes, WIDTH, WIDTH, WIDTH, LAYERS, quantised=False)
                network = Network(kind, case.nodes, WIDTH, WIDTH, WIDTH, LAYERS)
                host = floats.time_ns(hosted) + LAYERS * sum_ns(hosted, sized, cached)
                ratios.append(host * power / whole(case.base.reports[PUBLISHED], hosted, network, energy))
        yield ratios


def memory() -> list[Row]:
    """Return the MiB needed in the fullest core, of 64, by scheme and grid."""
    machine = Machine()
    ranks = machine.config.ranks
    plans = {f"PaF {sp}x{ranks // sp}": prior_art.published(sp, ranks // sp) for sp in (1, 2, 4, 8, 16, 32)}
    plans["GraNDe-like"] = prior_art.grande(machine.config)
    return [_row(machine, name, plan) for name, plan in plans.items()]


def _row(machine: Machine, name: str, plan: PimPlan) -> Row:
    limit = machine.config.core.mram_bytes / 2**20
    try:
        need, outcome = machine.simulate(_AMAZON, WIDTH, plan, DTYPE).mram_bytes_max, "fits"
    except MachineMemoryError as error:
        need, outcome = error.need_bytes, "does not fit"
    note = f"It {outcome}: a core has {limit:.0f} MiB; by the abstract prior schemes run out of it."
    return row(f"memory of a core, whole AmazonProducts, width {WIDTH}, {name}", "MiB", note, need / 2**20)


# Milliseconds by phase, by number of ranks; an empty dictionary if no plan fits.
Phases = dict[int, dict[str, float]]


def phases(shapes: Shapes) -> Phases:
    """Return the time of each phase by number of ranks, for the plan that PyGim's search finds."""
    by_ranks: Phases = {}
    for ranks in RANKS:
        config = varied(base().config, "cores", base().config.cores * ranks / base().config.ranks)
        kernel = Machine(config).kernel(prior_art.PUBLISHED, DTYPE)
        plan = prior_art.pygim_search(config, shapes, WIDTH, kernel)
        times = {} if plan is None else Machine(config).simulate(shapes, WIDTH, plan, DTYPE).phases_ns
        by_ranks[ranks] = {name: ns / 1e6 for name, ns in times.items()}
    return by_ranks


def ranks(graph: str, by_ranks: Phases) -> Iterator[Row]:
    """Yield the total time by number of ranks."""
    for ranks, times in by_ranks.items():
        note = "No plan of the published search fits so few ranks."
        if times:
            note = "The paper's figures could not be read. Broadcasts grow with the ranks."
        total = sum(times.values()) if times else None
        yield row(f"one aggregation, {PUBLISHED}, {ranks} ranks, {graph}", "ms", note, total)


def ranks_chart(graph: str, by_ranks: Phases) -> Chart:
    """Return a chart of the phases by number of ranks, side by side."""
    return Chart(
        name=f"ranks_{graph.split()[0]}",
        title=f"One aggregation by {PUBLISHED}, on 4 to 32 ranks, {graph}, width {WIDTH}, {DTYPE}",
        machine=named(base().config),
        unit="time, ms",
        groups=tuple(f"{ranks} ranks" for ranks in by_ranks),
        series=plain({name: [times.get(name) for times in by_ranks.values()] for name in PHASES}),
        absent="no plan fits",
    )


def calibration() -> list[Row]:
    """Return kernel rates, held-out transfers, and the totals of the published cost function."""
    return [*_kernels(), *_transfers(), *_totals()]


def _kernels() -> Iterator[Row]:
    for width, measured in EDGES_PER_MS.items():
        fitted = "Derived: two constants were fitted to widths 8, 16 and 32."
        note = fitted if width in _FITTED else "Held out: no constant was fitted to this width."
        ours = upmem_v1a().core.clock_mhz * 1e3 / cycles_per_edge(width)
        yield row(f"edges a millisecond and core, width {width}", "edges/ms", note, ours, measured)


def cycles_per_edge(width: int) -> float:
    """Return the cycles per edge of a published kernel on a core with 16 tasklets, without row costs."""
    edges = np.full((1, 1, 16), 1e6 / 16)
    counts = WorkCounts(edges, np.zeros_like(edges), np.zeros_like(edges), np.zeros((1, 1)))
    plan = replace(prior_art.PUBLISHED, tasklets=16)
    cycles, _ = core_cycles(upmem_v1a(), plan, Kernel("int32", "int32", multiplies=True), counts, width)
    return float(cycles[0, 0]) / 1e6


def _transfers() -> Iterator[Row]:
    for name, errors in held_out(upmem_v1a()).items():
        fit = "" if errors.r2 is None else f"R2 {errors.r2:.3f}, "
        note = (
            "Held out, one rank of another server (uPIMulator's data), two benchmarks; the links fit two "
            f"others there: {fit}bias {100 * errors.bias:+.0f} %."
        )
        yield row(f"mean error of {errors.points} transfers {name}", "%", note, 100 * errors.mean_error)


def _totals() -> Iterator[Row]:
    note = (
        "This was not measured: both sides come from the same constants, so agreement shows only that they "
        "are used alike."
    )
    machine = Machine(upmem_v1a())
    for graph, (nodes, edges, totals) in _COSTS.items():
        for (sp, ds), total in totals.items():
            size = BalancedShapes(nodes, nodes, edges)
            report = machine.simulate(size, 256, prior_art.published(sp, ds), "int32")
            figure = f"published cost function, {graph} {sp}x{ds}"
            yield row(figure, "ms", note, report.total_ms, float(total))
