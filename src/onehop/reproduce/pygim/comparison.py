"""Parallelism Fusion against the prior schemes, with an interval over the assumptions; and pictures of it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import geometric_mean

from onehop.machines.pim import PimReport
from onehop.machines.pim.combination import KINDS, Network, combination_energy_nj
from onehop.machines.pim.config import PimConfig
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.intervals import Setting, Unknown, decides, interval
from onehop.reproduce.pygim.assumptions import (
    POWERS,
    THREAD_LABELS,
    THREADS,
    UNKNOWNS,
    WITH_ARXIV,
    Assumption,
    base,
    of_energy,
    of_host,
    of_time,
)
from onehop.reproduce.pygim.schemes import (
    DTYPE,
    GRANDE,
    MAPPED,
    OURS,
    PRIOR,
    PUBLISHED,
    SCHEMES,
    WIDTH,
    Outcome,
    named,
    outcome,
)
from onehop.reproduce.tables import Chart, Row, Values, published, row, spans
from onehop.reproduce.twins import Progress

LAYERS = 2
# The abstract's ratios have two decimals.
HUNDREDTH = 0.01
# Relative difference up to which two schemes tie.
_TIE = 0.05
# A prior scheme, and a scheme of Parallelism Fusion.
PAIRS = (*product(PRIOR, (PUBLISHED, OURS)), *product(MAPPED, (PUBLISHED,)))
# Prior schemes that the abstract's "prior works for GNNs" may mean.
CLAIMED = (GRANDE, *MAPPED)
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {"mean": geometric_mean, "best": max}
# The abstract: mean and best over prior works on near-bank cores, for inference.
PAPER = {"time": (4.38, 7.20), "energy": (2.86, 3.68)}


@dataclass(frozen=True, slots=True)
class Case:
    """One graph at one number of merging threads.

    Attributes:
        graph: The graph's name.
        nodes: The number of its nodes.
        threads: Number of the host's threads that merge, for all schemes.
        outcomes: The outcome on each machine of :func:`machines`.
    """

    graph: str
    nodes: int
    threads: int
    outcomes: tuple[Outcome, ...]

    @property
    def base(self) -> Outcome:
        """The outcome on the preset."""
        return self.outcomes[0]


def machines() -> list[Assumption]:
    """Return the preset, followed by every machine that the evidence allows."""
    return [base(), *of_time()]


def measured(graph: str, shapes: Shapes, progress: Progress) -> list[Case]:
    """Run a graph under every scheme, on all machines."""
    cases = []
    allowed = machines()
    for at, threads in enumerate(THREADS):
        outcomes = []
        for number, assumption in enumerate(allowed):
            progress(f"{graph}: schemes, {threads} threads", (at + number / len(allowed)) / len(THREADS))
            outcomes.append(outcome(assumption, shapes, threads))
        cases.append(Case(graph, shapes.num_dst, threads, tuple(outcomes)))
    return cases


def rows(cases: Sequence[Case], apart: Sequence[Case] = ()) -> list[Row]:
    """Return whole-model rows by baseline, then aggregation rows by graph.

    Means of ours omit graphs ``apart``; the intervals' means have them too.
    """
    table: list[Row] = []
    for prior, scheme in PAIRS:
        table += _models(cases, apart, prior, scheme)
    by_graph = _by_graph([*cases, *apart])
    return table + [_aggregation(each, *pair) for each in by_graph.values() for pair in PAIRS]


def _by_graph(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the cases of each graph, by its name: one case for each number of threads."""
    by_graph: dict[str, list[Case]] = {}
    for case in cases:
        by_graph.setdefault(case.graph, []).append(case)
    return by_graph


def _models(cases: Sequence[Case], apart: Sequence[Case], prior: str, scheme: str) -> list[Row]:
    """Return mean and best over graphs and models, of time and energy; the published single thread first."""
    table: list[Row] = []
    in_time: dict[str, float] = {}
    for quantity, papers in PAPER.items():
        energy = quantity == "energy"
        by_setting = {
            setting: gained
            for setting, assumed, at, chosen in settings(cases, apart, energy)
            if (gained := list(_ratios(chosen, at, assumed, prior, scheme, energy)))
        }
        for (name, over), paper in zip(SUMMARIES.items(), papers, strict=True):
            of = len(_by_graph(cases)) * len(KINDS)
            figure = f"inference, {quantity} of {prior} over {scheme}, {name} of {of}"
            if frozenset() not in by_setting:
                table.append(row(figure, "x", f"{prior} fits no core's memory."))
                continue
            compared = prior in CLAIMED and scheme == PUBLISHED
            values = {setting: over(ratios) for setting, ratios in by_setting.items()}
            spanned = interval(values)
            note = _note(prior, compared, spanned.ours, in_time.get(name)) + open_winner(values.values())
            in_time.setdefault(name, spanned.ours)
            unknowns: tuple[Unknown, ...] = (*UNKNOWNS, *(POWERS if energy else ()))
            outside = not spanned.low <= paper <= spanned.high
            table.append(
                row(
                    figure,
                    "x",
                    f"{note} The published gain is outside the interval." if compared and outside else note,
                    spanned,
                    paper if compared else None,
                    # Energies of schemes whose mapping alone is known are further rows.
                    headline=compared and (prior == GRANDE or not energy),
                    place=HUNDREDTH,
                    decides=decides(spanned, unknowns),
                    unknowns=unknowns,
                )
            )
    return table


def settings(
    cases: Sequence[Case], apart: Sequence[Case], energy: bool
) -> Iterator[tuple[Setting, Assumption, int, list[Case]]]:
    """Yield every setting with its machine, the machine's place among outcomes, and its cases.

    Args:
        cases: The cases of the mean's graphs.
        apart: The cases of a graph that the mean may have too.
        energy: Whether powers vary as well.
    """
    graphs = {"": list(cases), **({WITH_ARXIV: [*cases, *apart]} if apart else {})}
    for (threads, merging), (added, chosen) in product(THREAD_LABELS.items(), graphs.items()):
        alike = [case for case in chosen if case.threads == threads]
        labels = frozenset(label for label in (merging, added) if label)
        for at, one in enumerate(machines()):
            for hosted in (one, *of_host(one)):
                for powered in (hosted, *of_energy(hosted)) if energy else (hosted,):
                    yield powered.setting | labels, powered, at, alike


def _ratios(
    cases: Iterable[Case], at: int, assumption: Assumption, prior: str, scheme: str, energy: bool
) -> Iterator[float]:
    for case in cases:
        reports = case.outcomes[at].reports
        if prior in reports and scheme in reports:
            for kind in KINDS:
                network = Network(kind, case.nodes, WIDTH, WIDTH, WIDTH, LAYERS)
                yield ratio(reports[prior], reports[scheme], assumption, network, energy)


def ratio(
    prior: PimReport, scheme: PimReport, assumption: Assumption, network: Network, energy: bool
) -> float:
    """Return a prior scheme's time, or energy, of a network's inference divided by another scheme's."""
    theirs = whole(prior, assumption.prior, network, energy, assumption.product_w)
    return theirs / whole(scheme, assumption.config, network, energy, assumption.product_w)


def whole(
    report: PimReport,
    config: PimConfig,
    network: Network,
    energy: bool,
    product_w: float | None = None,
) -> float:
    """Return the ns, or nJ, of a network's inference: the combination, and one aggregation per layer.

    The energy of the aggregation is computed again, with this machine's powers. ``product_w``: the host's
    power during the combination; None means its power during transfers.
    """
    host_ns = network.time_ns(config)
    if not energy:
        return host_ns + network.layers * report.total_ns
    power = config.power if product_w is None else replace(config.power, host_w=product_w)
    combination = combination_energy_nj(power, config.ranks, host_ns)
    return combination + network.layers * aggregation_energy_nj(report, config)


def aggregation_energy_nj(report: PimReport, config: PimConfig) -> float:
    """Return the energy of an aggregation on a machine that differs from the report's only in its powers."""
    power = config.power
    kernel, total = report.phases_ns["kernel"], report.total_ns
    # A summary has no busy times of cores; its energy was computed with the preset's power.
    busy_ns = report.energy_nj["cores"] / base().config.power.core_w
    host = power.host_w * (total - kernel) + power.host_idle_w * kernel
    return power.core_w * busy_ns + power.rank_w * config.ranks * total + host


def _aggregation(cases: Sequence[Case], prior: str, scheme: str) -> Row:
    ratios = [one.ratio(prior, scheme) for case in cases for one in case.outcomes]
    values = [ratio for ratio in ratios if ratio is not None]
    figure = f"aggregation, {prior} over {scheme}, {cases[0].graph}"
    if ratios[0] is None:
        return row(figure, "x", f"{prior} fits no core's memory.")
    note = "The paper's figures by graph could not be read."
    if prior in MAPPED:
        note = (
            "Its mapping to ranks, on whose cores rows are dealt out by number: the paper's way is not known."
        )
    return row(figure, "x", note + open_winner(values), values)


def _note(prior: str, compared: bool, gained: float, in_time: float | None) -> str:
    """Return the note for a ratio.

    ``compared``: whether the abstract may state this ratio. ``in_time``: the time ratio that belongs to an
    energy ratio.
    """
    if not compared:
        return "Not in the abstract, which compares with works for GNNs and with their published code."
    if prior in MAPPED:
        tie = " Here the two tie." if abs(gained - 1) <= _TIE else ""
        return (
            f"The abstract's gain is over prior works that it does not name.{tie} Of this scheme only the "
            "mapping to ranks is known; that its rows are dealt out to cores by number is our choice."
        )
    if in_time is None:
        return (
            "The abstract's gain is over prior works that it does not name. Twins and an assumed host; most "
            "of the prior scheme's time is its merge."
        )
    if gained < in_time:
        return "As in the paper, energy gains less than time: host and ranks draw power throughout."
    return "In the paper energy gains less than time, here more: the prior cores are busy for longer."


def open_winner(values: Iterable[float]) -> str:
    """Return the note's sentence for an interval that contains 1; empty for other intervals."""
    every = list(values)
    return " The winner is open: the interval holds 1." if min(every) < 1 < max(every) else ""


def winners(cases: Sequence[Case]) -> Iterator[Row]:
    """Yield rows on the published kernels' format and grid: which is best, or that this is open."""
    for case in (each for each in cases if each.threads == THREADS[0]):
        for what, values in (
            ("time of CSR over COO", [one.csr_over_coo for one in case.outcomes]),
            ("time of one sparse part over two, CSR", [one.one_over_two for one in case.outcomes]),
        ):
            note = "PyGim's own search has CSR with one or two parts."
            note += open_winner(values) or " The winner is the same on every machine."
            yield row(f"published kernels, {what}, {case.graph}", "x", note, values)


def charts(cases: Sequence[Case], rows: Sequence[Row]) -> tuple[Chart, ...]:
    """Return charts of time and energy of one aggregation by graph, and of all rows with a paper's value."""
    pictures = [
        _schemes(cases, "time", "time, ms", lambda report: report.total_ms),
        _schemes(cases, "energy", "energy, J", lambda report: report.energy_mj / 1e3),
    ]
    graphs = ", ".join(dict.fromkeys(case.graph for case in cases))
    compared = [each for each in rows if each.figure.startswith("inference, ") and each.headline]
    compared = [each for each in compared if each.figure.split(" of ")[1].split(" over ")[0] not in MAPPED]
    pictures.append(
        Chart(
            name="speedups",
            title=f"Inference of two layers, width {WIDTH}, {DTYPE}, on {graphs}: published and here",
            machine=f"{named(base().config)}; lines span what is assumed",
            unit="ratio, x",
            groups=tuple(_short(each.figure) for each in compared),
            series=published(compared),
        )
    )
    return tuple(pictures)


def _schemes(cases: Sequence[Case], what: str, unit: str, of: Callable[[PimReport], float]) -> Chart:
    """Return one aggregation under every scheme, with an interval over machines and merging threads."""
    by_graph = _by_graph(cases)

    def span(scheme: str, runs: Sequence[Case]) -> Values:
        outcomes = [one for case in runs for one in case.outcomes]
        values = [of(one.reports[scheme]) for one in outcomes if scheme in one.reports]
        at_base = runs[0].base.reports.get(scheme)
        return (None, None, None) if at_base is None else (of(at_base), min(values), max(values))

    return Chart(
        name=what,
        title=f"One aggregation, width {WIDTH}, {DTYPE}, merged by one thread; lines span what is assumed",
        machine=named(base().config),
        unit=unit,
        groups=tuple(by_graph),
        series=spans({scheme: [span(scheme, runs) for runs in by_graph.values()] for scheme in SCHEMES}),
        logarithmic=True,
    )


def _short(figure: str) -> str:
    """Return a short label for a figure."""
    words = figure.removeprefix("inference, ").replace(" over PaF, published", "")
    what, _, which = words.partition(" of ")
    name, _, how = which.partition(", ")
    return f"{what} {name.replace('PyTorch on the host', 'host')} {how.split()[0]}"
