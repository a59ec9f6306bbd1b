"""The gain of kernels for this processor over fallback kernels, by feature width.

The fallback kernels are the same kernels compiled for the oldest processor of this architecture. Generated
kernels are made for one width by ``onehop.tune(codegen=True)``, which uses them if they are faster than the
built-in ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from onehop import Graph, aggregate, native, tune
from onehop.bench.cases import Workload
from onehop.bench.peers.base import beta_warnings_ignored
from onehop.bench.peers.sparse import csr_tensor
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, interleave
from onehop.processor import name as processor_name
from onehop.reproduce.intervals import Interval
from onehop.reproduce.tables import Chart, Row, row, spans
from onehop.reproduce.twins import Progress, Twin

_TWIN = Twin("proteins", 0.04, scale=0.2)
_WIDTHS, _QUICK_WIDTHS = (8, 16, 32, 64, 128, 256, 512), (16, 32, 64, 128)
_ROUNDS, _QUICK_ROUNDS = 11, 5
# Seconds for the search and the compilation, for each width.
_BUDGET_S, _QUICK_BUDGET_S = 30.0, 8.0
_FALLBACK = "portable"
_OTHER_FALLBACK = (
    "For the published width iSpLib's fallback would have to be another than onehop's portable kernels, "
    "which have vectors of 16 bytes: the source does not say what it is."
)
_LONGER = "To decide it, one needs more rounds on an idle machine, and more graphs."
# Maker of the processor -> the published best width.
_PUBLISHED = {"Intel": 32, "AMD": 64}


@dataclass(frozen=True)
class Width:
    """The gains at one width.

    Attributes:
        columns: The width in columns.
        gains: Time of the fallback kernels divided by the time of "built-in" and "generated" kernels and of
            "torch".
        generated: The outcome for the generated kernels, in words.
    """

    columns: int
    gains: dict[str, Ratio]
    generated: str


def measured(quick: bool, progress: Progress) -> list[Width]:
    """Measure a sum over a twin at every width; empty if this build has only the fallback kernels."""
    if native.extension.selected_isa() == _FALLBACK:
        return []
    one = _TWIN.of_run(quick)
    data = one.data(progress)
    workload = Workload(one.label, data.edge_index, data.num_nodes)
    with beta_warnings_ignored():
        matrix = csr_tensor(workload, torch.int32, weighted=False)
    widths = _QUICK_WIDTHS if quick else _WIDTHS
    results = []
    for place, columns in enumerate(widths):
        progress(f"{one.name}: {columns} columns", place / len(widths))
        results.append(_at(workload.graph, matrix, columns, quick))
    return results


def _at(graph: Graph, matrix: Tensor, columns: int, quick: bool) -> Width:
    x = torch.randn(graph.num_src, columns, generator=torch.Generator().manual_seed(0), device="cpu")
    run = partial(aggregate, graph, x)
    fallback = partial(_by_fallback, run)
    gains = _over(fallback, {"built-in": run, "torch": lambda: matrix @ x}, quick)
    budget_s = _QUICK_BUDGET_S if quick else _BUDGET_S
    tuned = tune(graph, columns, backward=False, codegen=True, keep=False, again=True, budget_s=budget_s)
    # From here on, this process uses the tuned plan.
    gains |= _over(fallback, {"generated": run}, quick)
    return Width(columns, gains, tuned.entries[0].codegen)


def _over(
    fallback: Callable[[], object], calls: dict[str, Callable[[], object]], quick: bool
) -> dict[str, Ratio]:
    times = interleave({"fallback": fallback, **calls}, _QUICK_ROUNDS if quick else _ROUNDS)
    return {name: Ratio.of(times["fallback"], times[name]) for name in calls}


def _by_fallback(call: Callable[[], object]) -> object:
    best = native.extension.selected_isa()
    native.extension.select_isa(_FALLBACK)
    try:
        return call()
    finally:
        native.extension.select_isa(best)


def rows(widths: Sequence[Width]) -> list[Row]:
    """Return the width at which generated kernels gain most, by the processor's maker, and the gain there."""
    here = next((maker for maker in _PUBLISHED if maker in processor_name()), None)
    figure = "width at which generated kernels gain most over fallback kernels"
    rows = []
    for maker, paper in _PUBLISHED.items():
        if maker != here or not widths:
            missing = (
                f"a processor by {maker}" if maker != here else "kernels for this processor in the build"
            )
            rows.append(row(f"{figure}, {maker}", "columns", f"Needs {missing}.", paper=paper, headline=True))
            continue
        best = max(widths, key=lambda each: each.gains["generated"].median)
        gain = best.gains["generated"]
        # Widths whose quartiles overlap with the best width's.
        alike = [
            each.columns for each in widths if each.gains["generated"].upper_quartile >= gain.lower_quartile
        ]
        note = (
            f"On the {_TWIN.name} twin alone; the generated kernels are {gain.median:.2f} times as fast as "
            f"the fallback kernels at this width. {best.generated[:1].upper()}{best.generated[1:]}."
        )
        reach = "whose quartiles reach the best's"
        values = Interval(
            best.columns,
            min(alike),
            max(alike),
            f"{min(alike)} columns, {reach}",
            f"{max(alike)} columns, {reach}",
        )
        rows.append(
            row(
                f"{figure}, {maker}",
                "columns",
                note,
                values,
                paper,
                headline=True,
                otherwise=_OTHER_FALLBACK,
                decides=_LONGER,
            )
        )
    return rows


def charts(widths: Sequence[Width]) -> tuple[Chart, ...]:
    """Return a chart of the gains over the widths; no chart if there are only fallback kernels."""
    if not widths:
        return ()
    gains = {name: [each.gains[name] for each in widths] for name in ("generated", "built-in", "torch")}
    chart = Chart(
        name="widths",
        title="Sum of neighbours, times as fast as the fallback kernels, by width",
        machine=machine_line(),
        unit="gain",
        groups=tuple(str(each.columns) for each in widths),
        series=spans(
            {
                name: [(gain.median, gain.lower_quartile, gain.upper_quartile) for gain in each]
                for name, each in gains.items()
            }
        ),
    )
    return (chart,)
