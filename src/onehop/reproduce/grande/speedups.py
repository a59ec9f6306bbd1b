"""Speed-up of aggregation over the host and over prior near-data machines, and end to end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan
from onehop.reproduce.grande.graphs import HIDDEN, TWINS, Twin
from onehop.reproduce.rows import Chart, Row, Series

# Ranks of the machine, and tFAW: the paper gives neither, and each choice is as likely.
CASES = tuple((machine, faw) for machine in ("grande_16", "grande_32") for faw in ("preset", "sheet"))
BASE = CASES[0]
# Abstract and section 1: mean and best over the graphs.
_PAPER = {"host": (3.01, 4.00), "prior": (1.69, 1.98), "end to end": (1.91, 3.02)}
_DIFFERENCE = (
    "Twins for the paper's graphs; ranks (16 or 32) and tFAW (20 or 13.3 ns) are not published and span the "
    "interval."
)


@dataclass(frozen=True, slots=True)
class Run:
    """Three layers of one graph on one machine.

    Attributes:
        twin: The graph.
        case: Machine and tFAW.
        time_ns: Adaptive mapping, re-tiling included.
        host_ns: The host alone.
        prior_ns: The best prior machine, its steps one after another, as the paper draws it.
    """

    twin: Twin
    case: tuple[str, str]
    time_ns: float
    host_ns: float
    prior_ns: float

    @property
    def over_host(self) -> float:
        """Speed-up over the host."""
        return self.host_ns / self.time_ns

    @property
    def over_prior(self) -> float:
        """Speed-up over the best prior machine."""
        return self.prior_ns / self.time_ns

    @property
    def end_to_end(self) -> float:
        """Speed-up of a whole GCN by Amdahl's law, with the paper's share of aggregation."""
        share = self.twin.aggregation_percent / 100
        return 1 / (1 - share + share / self.over_host)


_RATIOS: dict[str, Callable[[Run], float]] = {
    "host": lambda run: run.over_host,
    "prior": lambda run: run.over_prior,
    "end to end": lambda run: run.end_to_end,
}


_TIMES: dict[str, Callable[[Run], float]] = {
    "host alone": lambda run: run.host_ns,
    "best prior near-data machine": lambda run: run.prior_ns,
    "near-rank, adaptive mapping": lambda run: run.time_ns,
}


def measured(twin: Twin, graph: Graph) -> list[Run]:
    """Runs a graph on every machine that the paper may mean."""
    found = []
    machines = {name: Machine(name) for name in dict.fromkeys(name for name, _ in CASES)}
    for case in CASES:
        name, faw = case
        machine = machines[name].change(dram={"faw": faw})
        layers = machine.layers(graph, twin.widths, NdpPlan(), record=0)
        found.append(
            Run(
                twin,
                case,
                sum(layer.time_ns for layer in layers),
                sum(layer.baseline.time_ns for layer in layers),
                sum(layer.best_prior.serial_ns for layer in layers),
            )
        )
    return found


def rows(runs: Sequence[Run], quick: bool) -> list[Row]:
    """Mean and best over the graphs, then each graph."""
    found = []
    for what, (mean, best) in _PAPER.items():
        for name, paper, over in (("mean", mean, fmean), ("best", best, max)):
            values = {case: over([_RATIOS[what](run) for run in runs if run.case == case]) for case in CASES}
            found.append(
                Row(
                    figure=f"{_title(what)}, {name} of {len(TWINS)} graphs",
                    paper=paper,
                    ours=values[BASE],
                    low=min(values.values()),
                    high=max(values.values()),
                    unit="x",
                    note=_DIFFERENCE
                    if what != "end to end"
                    else _DIFFERENCE[:-1] + "; combination by the paper's own shares of aggregation.",
                )
            )
    for twin in TWINS:
        for what, ratio in _RATIOS.items():
            by_case = {run.case: ratio(run) for run in runs if run.twin is twin}
            found.append(
                Row(
                    figure=f"{_title(what)}, {twin.label(quick)}",
                    ours=by_case[BASE],
                    low=min(by_case.values()),
                    high=max(by_case.values()),
                    unit="x",
                    note="The paper's figures by graph could not be read.",
                )
            )
    return found


def charts(runs: Sequence[Run], quick: bool) -> tuple[Chart, ...]:
    """Times of host, prior machine and ours; and the speed-ups beside the paper's."""
    base = [run for run in runs if run.case == BASE]
    groups = tuple(run.twin.label(quick) for run in base)
    times = Chart(
        name="times",
        title=f"Aggregation of three layers, widths of features, {HIDDEN} and {HIDDEN}",
        machine="simulated: grande_16, 16 ranks of DDR5-4800, tFAW 20 ns",
        unit="time, ms",
        groups=groups,
        series=tuple(
            Series(label=name, values=tuple(time(run) / 1e6 for run in base)) for name, time in _TIMES.items()
        ),
        logarithmic=True,
    )
    summary = [row for row in rows(runs, quick) if row.paper is not None]
    ratios = Chart(
        name="speedups",
        title=f"Speed-ups over {', '.join(groups)}: published and here",
        machine="simulated: grande_16; lines span 16 and 32 ranks, tFAW 20 and 13.3 ns",
        unit="speed-up, x",
        groups=tuple(row.figure.replace(f" of {len(TWINS)} graphs", "") for row in summary),
        series=(
            Series(label="published", values=tuple(row.paper for row in summary)),
            Series(
                label="here",
                values=tuple(row.ours for row in summary),
                low=tuple(row.low for row in summary),
                high=tuple(row.high for row in summary),
            ),
        ),
    )
    return times, ratios


def _title(what: str) -> str:
    over = {"host": "the host", "prior": "the best prior machine"}
    return "end to end over the host" if what == "end to end" else f"aggregation over {over[what]}"
