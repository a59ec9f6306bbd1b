"""Figures of the machine itself: its host, the memory of a core, ranks, and constants against measurements.

PyTorch's time on the host is bounded by the host's memory. Constants are compared with data to which they
were fitted, or with held-out data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onehop.errors import MachineMemoryError
from onehop.machines.pim import (
    BalancedShapes,
    Machine,
    PimConfig,
    PimPlan,
    PimReport,
    prior_art,
    upmem_v1a,
)
from onehop.machines.pim.calibration import held_out
from onehop.machines.pim.combination import KINDS, Network
from onehop.machines.pim.costs import Kernel, core_cycles
from onehop.machines.pim.presets import EDGES_PER_MS
from onehop.machines.pim.report import PHASES
from onehop.machines.pim.shapes import Shapes, WorkCounts
from onehop.machines.pim.vary import varied
from onehop.reproduce.intervals import BASE, decides, interval
from onehop.reproduce.pygim.assumptions import CACHED, HOSTS, POWERS, UNKNOWNS, Assumption, base
from onehop.reproduce.pygim.comparison import HUNDREDTH, LAYERS, SUMMARIES, Case, open_winner, settings, whole
from onehop.reproduce.pygim.schemes import DTYPE, PUBLISHED, WIDTH, named
from onehop.reproduce.tables import Chart, Row, plain, row

# The abstract: mean and best over PyTorch on the host.
PAPER = {"time": (3.04, 3.44), "energy": (1.55, 1.75)}
_HOST_NOTE = (
    "PyTorch reads a row for every edge at the host's 23.1 GB/s, with floats; the cores compute with "
    "integers. AmazonProducts is a quarter of its twin."
)
_INDEX_BYTES, _ITEM_BYTES = 4, 4
_AMAZON = BalancedShapes(1_569_960, 1_569_960, 264_339_468)
RANKS = (4, 8, 16, 32)
_SLOWER = (
    "For the published value PyTorch would have to read slower than the host's memory streams, or the cores "
    "be faster than their published transfers and instructions say."
)
# Widths at which the instructions per edge and per element were fitted.
_FITTED = (8, 16, 32)


def sum_ns(config: PimConfig, shapes: Shapes, cached: bool) -> float:
    """Return the time of a float32 sum on the machine's host, at the speed of its memory.

    Each row of features is read once if ``cached``, else once per edge.
    """
    row = WIDTH * _ITEM_BYTES
    rows = shapes.num_src if cached else shapes.num_edges
    # An index and a value per edge, the rows, the results.
    moved = shapes.num_edges * (_INDEX_BYTES + _ITEM_BYTES) + (rows + shapes.num_dst) * row
    return moved / config.links.host_dram_gbps


def over_host(cases: Sequence[Case], shapes: Mapping[str, Shapes], apart: Sequence[Case] = ()) -> list[Row]:
    """Return speed-up and energy saving over PyTorch on the host.

    Args:
        cases: The cases of the mean's graphs.
        shapes: The graphs' shapes, by the graphs' names.
        apart: The cases of a graph that the mean may have too.
    """
    rows = []
    for quantity, papers in PAPER.items():
        energy = quantity == "energy"
        by_setting = {}
        for setting, assumed, at, chosen in settings(cases, apart, energy):
            for label, cached in (("", False), (CACHED, True)):
                hosted = [
                    each
                    for case in chosen
                    if PUBLISHED in case.outcomes[at].reports
                    for each in host_ratios(
                        case.outcomes[at].reports[PUBLISHED], shapes[case.graph], assumed, cached, energy
                    )
                ]
                by_setting[setting | {label} if label else setting] = hosted
        for (name, over), published in zip(SUMMARIES.items(), papers, strict=True):
            values = {setting: over(ratios) for setting, ratios in by_setting.items() if ratios}
            figure = f"inference, {quantity} of PyTorch on the host over {PUBLISHED}, {name}"
            if BASE not in values:
                rows.append(row(figure, "x", f"{PUBLISHED} fits no core's memory.", paper=published))
                continue
            spanned = interval(values)
            note = f"{_HOST_NOTE}{open_winner(values.values())}"
            if not spanned.low <= published <= spanned.high:
                note += " The published gain is outside the interval."
            unknowns = (*UNKNOWNS, *HOSTS, *(POWERS if energy else ()))
            rows.append(
                row(
                    figure,
                    "x",
                    note,
                    spanned,
                    published,
                    headline=True,
                    place=HUNDREDTH,
                    otherwise=_SLOWER,
                    decides=decides(spanned, unknowns),
                    unknowns=unknowns,
                )
            )
    return rows


def host_ratios(
    report: PimReport, sized: Shapes, assumed: Assumption, cached: bool, energy: bool
) -> Iterator[float]:
    """Yield PyTorch's time, or energy, on the host divided by the machine's, for each model.

    The host draws the same power in its products for both; PyTorch's sparse products keep all cores busy
    too.
    """
    config, watts = assumed.config, 1.0
    if energy:
        watts = config.power.host_w if assumed.product_w is None else assumed.product_w
    for kind in KINDS:
        floats = Network(kind, sized.num_dst, WIDTH, WIDTH, WIDTH, LAYERS, quantised=False)
        network = Network(kind, sized.num_dst, WIDTH, WIDTH, WIDTH, LAYERS)
        host = floats.time_ns(config) + LAYERS * sum_ns(config, sized, cached)
        yield host * watts / whole(report, config, network, energy, assumed.product_w)


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
    """Return kernel rates and held-out transfers."""
    return [*_kernels(), *_transfers()]


def _kernels() -> Iterator[Row]:
    for width, measured in EDGES_PER_MS.items():
        fitted = width in _FITTED
        note = "Measured by the paper's authors, in their repository (utils/autotuner.py). "
        note += (
            "Two constants were fitted to widths 8, 16 and 32."
            if fitted
            else "Held out: no constant was fitted to this width."
        )
        ours = upmem_v1a().core.clock_mhz * 1e3 / cycles_per_edge(width)
        figure = f"edges a millisecond and core, width {width}"
        yield row(figure, "edges/ms", note, ours, measured, fitted=fitted)


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
