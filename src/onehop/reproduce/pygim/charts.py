"""Pictures of the comparison: every scheme's time by graph, and the speed-ups beside the paper's."""

from collections.abc import Callable, Sequence

from onehop.machines.pim import PimReport
from onehop.reproduce.pygim.assumptions import base
from onehop.reproduce.pygim.comparison import Case
from onehop.reproduce.pygim.schemes import DTYPE, SCHEMES, THREADS, WIDTH, named
from onehop.reproduce.rows import Chart, Row, Series


def charts(cases: Sequence[Case], rows: Sequence[Row]) -> tuple[Chart, ...]:
    """Time and energy of one aggregation by merging threads; and the rows with a paper's value.

    Args:
        cases: All graphs.
        rows: All rows of the reproduction.
    """
    found = []
    for threads in THREADS:
        own = [case for case in cases if case.threads == threads]
        for what, unit, of in (
            ("time", "time, ms", lambda report: report.total_ms),
            ("energy", "energy, J", lambda report: report.energy_mj / 1e3),
        ):
            found.append(_schemes(own, threads, what, unit, of))
    graphs = ", ".join(dict.fromkeys(case.graph for case in cases))
    compared = [row for row in rows if row.figure.startswith("inference, ") and row.paper is not None]
    found.append(
        Chart(
            name="speedups",
            title=f"Inference of two layers, width {WIDTH}, {DTYPE}, on {graphs}: published and here",
            machine=f"{named(base().config)}; lines span what is assumed",
            unit="ratio, x",
            groups=tuple(_short(row.figure) for row in compared),
            series=(
                Series(label="published", values=tuple(row.paper for row in compared)),
                Series(
                    label="here",
                    values=tuple(row.ours for row in compared),
                    low=tuple(row.low for row in compared),
                    high=tuple(row.high for row in compared),
                ),
            ),
        )
    )
    return tuple(found)


def _schemes(
    cases: Sequence[Case], threads: int, what: str, unit: str, of: Callable[[PimReport], float]
) -> Chart:
    """One aggregation under every scheme, with an interval over the machines."""
    series = []
    for scheme in SCHEMES:
        values, low, high = [], [], []
        for case in cases:
            known = [of(one.reports[scheme]) for one in case.outcomes if scheme in one.reports]
            base_report = case.base.reports.get(scheme)
            values.append(None if base_report is None else of(base_report))
            low.append(min(known) if base_report is not None else None)
            high.append(max(known) if base_report is not None else None)
        series.append(Series(label=scheme, values=tuple(values), low=tuple(low), high=tuple(high)))
    return Chart(
        name=f"{what}_{threads}_threads",
        title=f"One aggregation, width {WIDTH}, {DTYPE}, merged by {threads} "
        f"thread{'' if threads == 1 else 's'}; lines span what is assumed",
        machine=named(base().config),
        unit=unit,
        groups=tuple(case.graph for case in cases),
        series=tuple(series),
        logarithmic=True,
    )


def _short(figure: str) -> str:
    """A label of few words."""
    words = (
        figure.removeprefix("inference, ")
        .replace(" over PaF, published", "")
        .replace(", merged by 1 thread", "")
    )
    what, _, which = words.partition(" of ")
    name, _, how = which.partition(", ")
    return f"{what} {name.replace('PyTorch on the host', 'host')} {how.split()[0]}"
