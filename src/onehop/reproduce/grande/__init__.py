"""GraNDe: near-rank aggregation, on twins of the paper's graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import NamedTuple

from onehop.graph import Graph
from onehop.machines.ndp import Host, Machine, NdpPlan, layer_works, run_model
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.reproduce.grande.graphs import HIDDEN, TWINS, PaperGraph, sizes
from onehop.reproduce.grande.sampled import sampled
from onehop.reproduce.grande.tiles import TILES, gains, retiling
from onehop.reproduce.tables import Chart, Reproduction, Row, plain, published, row
from onehop.reproduce.twins import Progress, loaded, silent

_SOURCE = (
    "S. Yun et al., GraNDe, IEEE Transactions on Computers 73(10), 2024. Sections 1 to 6, 10 and 11 could be "
    "read; the set-up, the results by graph, area and energy could not."
)
# The paper gives neither the clock of its units, which determines products, nor the graph of its best figure.
CLOCKS_MHZ = (300, 600, 1200, 2400)


class Case(NamedTuple):
    """One choice of everything that the paper leaves open and that its ratios depend on.

    Attributes:
        machine: Name of the machine, with 16 or 32 ranks.
        faw: tFAW of the preset (20 ns) or of a data sheet (13.3 ns).
        clock_mhz: Clock of the units. 300 MHz keep up with the ranks' reads if each read is used once; a tile
            uses a read up to eight times.
        host_order: "after", as drawn in Figure 5, or "adaptive", the fastest.
        retile: "rows", the order drawn in Figure 6 (b), or "ranks", lists one after another; in batches of
            one window, as in the text.
        llc_mib: The host's cache for features: 0, because the text says that features are rarely reused, or
            the cache of the paper's Xeon Gold 6138.
    """

    machine: str = "grande_16"
    faw: str = "preset"
    clock_mhz: float = 1200.0
    host_order: str = "adaptive"
    retile: str = "rows"
    llc_mib: float = 0.0

    def layers(self, machine: Machine, graph: Graph, widths: Sequence[int]) -> list[LayerOutcome]:
        """Return a model's layers under this choice, on its machine, which keeps the graph's counts."""
        changed = machine.change(
            dram={"faw": self.faw}, module={"clock_mhz": self.clock_mhz}, host={"llc_mib": self.llc_mib}
        )
        return changed.layers(
            graph, widths, NdpPlan(retile=self.retile, host_order=self.host_order), record=0
        )


BASE = Case()
# Cases change ranks and tFAW one at a time from the base; the other choices appear in all combinations.
CASES = tuple(
    dict.fromkeys(
        [
            BASE,
            *(
                Case(machine, faw)
                for machine, faw in product(("grande_16", "grande_32"), ("preset", "sheet"))
            ),
            *(
                Case(clock_mhz=clock, host_order=order, retile=retile, llc_mib=llc)
                for clock, order, retile, llc in product(
                    (300.0, 1200.0, 2400.0), ("adaptive", "after"), ("rows", "ranks"), (0.0, 27.5)
                )
            ),
        ]
    )
)
# Abstract and section 1: mean and best over the graphs.
PAPER = {"host": (3.01, 4.00), "prior": (1.69, 1.98), "serial": (1.91, 3.02), "Amdahl": (1.91, 3.02)}
_DIFFERENCE = (
    "Twins for the paper's graphs. Not published, and spanning the interval: the clock (300 to 2,400 MHz), "
    "the merge's order, the host's order and cache (none or 27.5 MiB), ranks (16 or 32), tFAW (20 or 13.3 ns)"
)
# 20 cores with 64 operations per clock at 1.9 GHz.
_PEAK_GFLOPS = 2432.0


@dataclass(frozen=True, slots=True)
class Run:
    """Three layers of one graph on one machine.

    Attributes:
        twin: The graph.
        case: What the paper leaves open.
        time_ns: Time with adaptive mapping, including re-tiling.
        host_ns: Time of the host alone.
        prior_ns: Time of the best prior machine with its steps one after another, as the paper draws it.
        nodes: Number of nodes in the graph.
    """

    twin: PaperGraph
    case: Case
    time_ns: float
    host_ns: float
    prior_ns: float
    nodes: int

    @property
    def over_host(self) -> float:
        """Speed-up over the host."""
        return self.host_ns / self.time_ns

    @property
    def over_prior(self) -> float:
        """Speed-up over the best prior machine."""
        return self.prior_ns / self.time_ns

    @property
    def serial(self) -> float:
        """Speed-up of a whole GCN whose layers aggregate and then combine, as drawn in Figure 8."""
        combined = combination_ns(self, Host().combine_gflops)
        return (self.host_ns + combined) / (self.time_ns + combined)

    @property
    def by_amdahl(self) -> float:
        """Speed-up of a whole GCN by Amdahl's law, with the share of aggregation from Figure 2."""
        share = self.twin.aggregation_percent / 100
        return 1 / (1 - share + share / self.over_host)


# Name of a ratio -> its name in rows, the ratio, and an addition to its note.
_RATIOS: dict[str, tuple[str, Callable[[Run], float], str]] = {
    "host": ("aggregation over the host", lambda run: run.over_host, ""),
    "prior": ("aggregation over the best prior machine", lambda run: run.over_prior, ""),
    "serial": (
        "end to end over the host, aggregation then combination",
        lambda run: run.serial,
        "; combination modelled at 70 % of the peak of the paper's Xeon",
    ),
    "Amdahl": (
        "end to end over the host by Amdahl's law",
        lambda run: run.by_amdahl,
        "; combination by the paper's own shares of aggregation, Figure 2",
    ),
}
_SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "best": max}
_TIMES: dict[str, Callable[[Run], float]] = {
    "host alone": lambda run: run.host_ns,
    "best prior near-data machine": lambda run: run.prior_ns,
    "near-rank, adaptive mapping": lambda run: run.time_ns,
}


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Compute the figures of GraNDe; with ``quick``, on parts of the twins."""
    runs: list[Run] = []
    tiled: list[Row] = []
    gained: list[Row] = []
    sized: list[Row] = []
    by_clock: list[Row] = []
    for one, graph, report in loaded([each.of_run(quick) for each in TWINS], progress):
        report(f"{one.paper}: aggregation", 0.0)
        runs += measured(one, graph)
        tiled += retiling(one, graph)
        gained += gains(one, graph) + overlapped(one, graph)
        sized += held(one, graph)
        by_clock += clock(one, graph)
    summary = speedups(runs)
    whole = () if quick else sampled(progress)
    rows = (*summary, *shares(runs), *speedups_by_graph(runs), *tiled, *gained, *by_clock, *whole, *sized)
    return Reproduction(work="grande", source=_SOURCE, rows=rows, charts=charts(runs, summary, tiled))


def measured(one: PaperGraph, graph: Graph) -> list[Run]:
    """Run a graph on every machine that the paper may mean."""
    machines = {case.machine: Machine(case.machine) for case in CASES}
    layers = {case: case.layers(machines[case.machine], graph, one.widths) for case in CASES}
    return [
        Run(
            one,
            case,
            sum(layer.time_ns for layer in outcomes),
            sum(layer.baseline.time_ns for layer in outcomes),
            sum(layer.best_prior.serial_ns for layer in outcomes),
            graph.num_dst,
        )
        for case, outcomes in layers.items()
    ]


def speedups(runs: Sequence[Run]) -> list[Row]:
    """Return speed-ups of aggregation and of whole models, mean and best over the graphs."""
    return [
        row(
            f"{title}, {name} of {len(TWINS)} graphs",
            "x",
            f"{_DIFFERENCE}{added}.",
            [over([ratio(run) for run in runs if run.case == case]) for case in CASES],
            paper,
            # Figure 8 is serial; Amdahl's law is another way to derive the same published values.
            headline=what != "Amdahl",
        )
        for what, (title, ratio, added) in _RATIOS.items()
        for (name, over), paper in zip(_SUMMARIES.items(), PAPER[what], strict=True)
    ]


def overlapped(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the speed-up of a GCN whose host combines one window while the modules compute the next."""
    ran = run_model(Machine("grande_16"), graph, "gcn", [*one.widths, HIDDEN])
    over = ran.as_dict()
    note = (
        "Ours: the paper's Figure 8 has combination after aggregation, which here, with final vectors in the "
        f"next layer's width, gives {over['serial_speedup_over_baseline']:.2f}."
    )
    figure = f"end to end over the host, overlapped, {one.label}"
    return [row(figure, "x", note, over["overlapped_speedup_over_baseline"])]


def speedups_by_graph(runs: Sequence[Run]) -> list[Row]:
    """Return the speed-ups of each graph."""
    return [
        row(
            f"{title}, {one.label}",
            "x",
            "The paper's figures by graph could not be read.",
            [ratio(run) for run in runs if run.twin is one],
        )
        for one in dict.fromkeys(run.twin for run in runs)
        for title, ratio, _ in _RATIOS.values()
    ]


def charts(runs: Sequence[Run], summary: Sequence[Row], tiled: Sequence[Row]) -> tuple[Chart, ...]:
    """Return charts of times (host, prior machine, ours), speed-ups with the paper's, and saved reads."""
    base = [run for run in runs if run.case == BASE]
    groups = tuple(run.twin.label for run in base)
    times = Chart(
        name="times",
        title=f"Aggregation of three layers, widths of features, {HIDDEN} and {HIDDEN}",
        machine="simulated: grande_16, 16 ranks of DDR5-4800, tFAW 20 ns",
        unit="time, ms",
        groups=groups,
        series=plain({name: [time(run) / 1e6 for run in base] for name, time in _TIMES.items()}),
        logarithmic=True,
    )
    ratios = Chart(
        name="speedups",
        title=f"Speed-ups over {', '.join(groups)}: published and here",
        machine="simulated: grande_16; lines span 16 and 32 ranks, tFAW 20 and 13.3 ns",
        unit="speed-up, x",
        groups=tuple(each.figure.replace(f" of {len(TWINS)} graphs", "") for each in summary),
        series=published(summary),
    )
    by_tile = Chart(
        name="tiles",
        title="Feature reads that re-tiled targets save, by targets a tile",
        machine="counted",
        unit="reads saved, %",
        groups=tuple(f"tiles of {tile}" for tile in TILES),
        series=plain(
            {
                group: [each.ours for each in tiled if each.figure.endswith(f"re-tiled, {group}")]
                for group in groups
            }
        ),
    )
    return times, ratios, by_tile


def clock(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the speed-up over the host of the best layer of products, by clock; empty for other graphs."""
    if one.paper != "products":
        return []
    rows = []
    base = Machine("grande_16")
    for mhz in CLOCKS_MHZ:
        machine = base.change(module={"clock_mhz": float(mhz)})
        layers = machine.layers(graph, one.widths, NdpPlan(), record=0)
        figure = f"best layer over the host, units at {mhz} MHz, {one.label}"
        note = "The paper gives neither the clock nor the graph of its best figure."
        best = max(layer.baseline.time_ns / layer.time_ns for layer in layers)
        rows.append(row(figure, "x", note, best, PAPER["host"][1]))
    return rows


def held(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return rows for adjacency and features of one graph, extrapolated if a part of the twin is used."""
    part = "" if one.scale == 1 else f" Extrapolated from {one.scale:g} of the twin."
    notes = (
        f"The twin has the graph's numbers of nodes and edges.{part}",
        f"The twin has the graph's number of nodes.{part}",
    )
    published_mb = (one.adjacency_mb, one.features_mb)
    return sizes(one.paper, [graph.num_edges], graph.num_dst, published_mb, notes, one.scale)


def shares(runs: Sequence[Run]) -> list[Row]:
    """Return the modelled share of aggregation in a GCN's time on the host alone (Figure 2)."""
    note = (
        "Modelled: the host's reads, and its products at 70 % of the peak of the paper's Xeon Gold 6138 or "
        "all of it. The interval has both, and the host with and without its cache."
    )
    rows = []
    for one in dict.fromkeys(run.twin for run in runs):
        graph_runs = [run for run in runs if run.twin is one]
        values = [
            100 * run.host_ns / (run.host_ns + combination_ns(run, gflops))
            for run in graph_runs
            for gflops in (Host().combine_gflops, _PEAK_GFLOPS)
        ]
        figure = f"share of aggregation in a GCN's time, {one.label}"
        rows.append(row(figure, "%", note, values, one.aggregation_percent, headline=True))
    return rows


def combination_ns(run: Run, gflops: float) -> float:
    """Return the host's time for the products and elementwise steps of a GCN of three layers."""
    works = layer_works("gcn", [*run.twin.widths, HIDDEN], replace(Host(), combine_gflops=gflops))
    return run.nodes * sum(work.ns for work in works)
