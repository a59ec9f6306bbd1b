"""GraNDe: near-rank aggregation, on twins of the paper's graphs."""

from collections.abc import Callable, Sequence

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan, run_model
from onehop.reproduce.grande.cases import (
    BASE,
    CASES,
    RATES,
    SUMMARIES,
    UNKNOWNS,
    Case as Case,
    Run,
    case_of,
    combination_ns as combination_ns,
    machines,
    run,
    with_rate,
)
from onehop.reproduce.grande.claims import steps
from onehop.reproduce.grande.graphs import HIDDEN, TWINS, PaperGraph, sizes
from onehop.reproduce.grande.sampled import sampled
from onehop.reproduce.grande.tiles import TILES, gains, retiling
from onehop.reproduce.intervals import Interval, Setting, decides, interval
from onehop.reproduce.nearest import Fit, Target, nearest
from onehop.reproduce.tables import Chart, Reproduction, Row, plain, published, row
from onehop.reproduce.twins import Progress, loaded, part, silent

_SOURCE = (
    "S. Yun et al., GraNDe, IEEE Transactions on Computers 73(10), 2024. Sections 1 to 6, 10 and 11 could be "
    "read; the set-up, the results by graph, area and energy could not."
)
# The paper gives neither the clock of its units, which determines products, nor the graph of its best figure.
CLOCKS_MHZ = (300, 600, 1200, 2400)
# Abstract and section 1: mean and best over the graphs.
PAPER = {"host": (3.01, 4.00), "prior": (1.69, 1.98), "serial": (1.91, 3.02), "Amdahl": (1.91, 3.02)}
# Speed-ups are published with two decimals.
_HUNDREDTH = 0.01
_TWINS_NOTE = "Twins for the paper's graphs; our base has 16 ranks and units at 300 MHz"
# Name of a ratio -> its name in rows, the ratio at a rate of the host's products, an addition to its note.
_RATIOS: dict[str, tuple[str, Callable[[Run, float], float], str]] = {
    "host": ("aggregation over the host", lambda run, _: run.over_host, ""),
    "prior": (
        "aggregation over the best prior machine",
        lambda run, _: run.over_prior,
        "; prior machines work step after step, as Figure 5 (b) draws them",
    ),
    "serial": (
        "end to end over the host, aggregation then combination",
        lambda run, gflops: run.end_to_end(gflops),
        "; combination modelled on the paper's Xeon",
    ),
    "Amdahl": (
        "end to end over the host by Amdahl's law",
        lambda run, _: run.by_amdahl,
        "; combination by the paper's own shares of aggregation, Figure 2",
    ),
}
# Amdahl's law is another way to derive the same published values, and Figure 8 is serial.
_CLAIMED = ("host", "prior", "serial")
_OTHER_SHARE = (
    "For the published value the Xeon's products would have to be slower than 70 % of its peak, or its reads "
    "find more in its caches than they do here."
)
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
        machine = BASE.on(Machine(BASE.machine))
        gained += [*gains(one, graph), *overlapped(one, graph), *steps(one, graph, machine)]
        sized += held(one, graph)
        by_clock += clock(one, graph)
    summary = speedups(runs)
    whole = () if quick else sampled(progress)
    rows = (*summary, *shares(runs), *speedups_by_graph(runs), *tiled, *gained, *by_clock, *whole, *sized)
    return Reproduction(work="grande", source=_SOURCE, rows=rows, charts=charts(runs, summary, tiled))


def fit(quick: bool, progress: Progress = silent) -> Fit:
    """Return the configuration that is nearest to the six speed-ups and the four shares of Figure 2."""
    twins = [each.of_run(quick) for each in TWINS]
    graphs = [(one, graph) for one, graph, _ in loaded(twins, part(progress, 0.0, 0.5))]
    by_graph = [(one, graph, machines()) for one, graph in graphs]
    known: dict[Case, list[Run]] = {}

    def ran(case: Case) -> list[Run]:
        if case not in known:
            known[case] = [run(one, graph, named, case) for one, graph, named in by_graph]
        return known[case]

    def values(setting: Setting) -> tuple[float, ...]:
        gflops = next((rate for label, rate in RATES.items() if label in setting), RATES[""])
        case = case_of(setting)
        speed_ups = [
            over([ratio(each, gflops) for each in ran(case)])
            for _, ratio, _ in (_RATIOS[what] for what in _CLAIMED)
            for over in SUMMARIES.values()
        ]
        # Figure 2 was measured on a Xeon of four channels, in every configuration.
        measured_on = ran(case._replace(machine=BASE.machine))
        return (*speed_ups, *(each.share(gflops) for each in measured_on))

    targets = [
        Target(f"{_RATIOS[what][0]}, {name}", paper, "speed-ups")
        for what in _CLAIMED
        for name, paper in zip(SUMMARIES, PAPER[what], strict=True)
    ]
    targets += [
        Target(f"share of aggregation, {one.label}", one.aggregation_percent, "shares of aggregation")
        for one, _ in graphs
    ]
    machine = f"simulated: near-rank machine, {', '.join(one.label for one, _ in graphs)}"
    starts = [case.setting for case in CASES]
    searched = part(progress, 0.5, 1.0)
    return nearest("grande", machine, targets, UNKNOWNS, values, starts, progress=searched)


def measured(one: PaperGraph, graph: Graph) -> list[Run]:
    """Run a graph on every machine that the paper may mean."""
    named = machines()
    return [run(one, graph, named, case) for case in CASES]


def speedups(runs: Sequence[Run]) -> list[Row]:
    """Return speed-ups of aggregation and of whole models, mean and best over the graphs."""
    rows = []
    for what, (title, ratio, added) in _RATIOS.items():
        for (name, over), paper in zip(SUMMARIES.items(), PAPER[what], strict=True):
            spanned = _interval(runs, ratio, over)
            rows.append(
                row(
                    f"{title}, {name} of {len(TWINS)} graphs",
                    "x",
                    f"{_TWINS_NOTE}{added}.",
                    spanned,
                    paper,
                    headline=what in _CLAIMED,
                    place=_HUNDREDTH,
                    decides=decides(spanned, UNKNOWNS),
                    unknowns=UNKNOWNS,
                )
            )
    return rows


def _interval(
    runs: Sequence[Run],
    figure: Callable[[Run, float], float],
    over: Callable[[Sequence[float]], float],
) -> Interval:
    """Return a figure over all settings of the runs."""
    cases = dict.fromkeys(run.case for run in runs)
    return interval(
        {
            with_rate(case.setting, label): over([figure(run, rate) for run in runs if run.case == case])
            for case in cases
            for label, rate in RATES.items()
        }
    )


def overlapped(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the speed-up of a GCN whose host combines one window while the modules compute the next."""
    ran = run_model(BASE.on(Machine(BASE.machine)), graph, "gcn", [*one.widths, HIDDEN])
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
            _interval([run for run in runs if run.twin is one], ratio, max),
            unknowns=UNKNOWNS,
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
        machine="simulated: grande_16, 16 ranks of DDR5-4800, tFAW 20 ns, units at 300 MHz",
        unit="time, ms",
        groups=groups,
        series=plain({name: [time(run) / 1e6 for run in base] for name, time in _TIMES.items()}),
        logarithmic=True,
    )
    ratios = Chart(
        name="speedups",
        title=f"Speed-ups over {', '.join(groups)}: published and here",
        machine="simulated: grande_16, units at 300 MHz; lines span what is not published",
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
        note = "The paper gives neither the clock nor the graph of its best figure, 4.00."
        best = max(layer.baseline.time_ns / layer.time_ns for layer in layers)
        rows.append(row(figure, "x", note, best))
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
    """Return the modelled share of aggregation in a GCN's time on the host alone (Figure 2).

    Figure 2 was measured on a Xeon with four memory channels, so machines with eight are left out.
    """
    note = (
        "Modelled: the host's reads on four channels, as the paper's Xeon has, and its products at 70 % of "
        "the peak of the paper's Xeon Gold 6138."
    )
    on_four = [each for each in runs if each.case.machine == BASE.machine]
    rows = []
    for one in dict.fromkeys(each.twin for each in on_four):
        spanned = _interval([each for each in on_four if each.twin is one], Run.share, max)
        figure = f"share of aggregation in a GCN's time, {one.label}"
        rows.append(
            row(
                figure,
                "%",
                note,
                spanned,
                one.aggregation_percent,
                headline=True,
                otherwise=_OTHER_SHARE,
                decides=decides(spanned, UNKNOWNS),
                unknowns=UNKNOWNS,
            )
        )
    return rows
