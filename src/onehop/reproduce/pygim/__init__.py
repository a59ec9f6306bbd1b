"""PyGim: aggregation on near-bank cores, on twins of the paper's graphs."""

from onehop.graph import Graph
from onehop.machines.pim import Machine
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.nearest import Fit
from onehop.reproduce.pygim import comparison, machine, nearest, sweeps, tuners, utilisation
from onehop.reproduce.tables import Chart, Reproduction, Row
from onehop.reproduce.twins import Progress, Twin, loaded, part, silent

_SOURCE = (
    "C. Giannoula et al., PyGim, SIGMETRICS 2025 (arXiv 2402.16731). Its abstract and its repository could "
    "be read; its evaluation could not."
)
# The abstract names no graph. These are recalled as the graphs of the paper's means, which nothing here
# shows. arxiv, of 7 edges a node, has separate rows, and the intervals have means with it too.
_TWINS = (Twin("reddit", 0.05), Twin("proteins", 0.05), Twin("amazonproducts", 0.01, scale=0.25))
_APART = Twin("arxiv", 0.5)


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Compute the figures of PyGim; with ``quick``, on parts of the twins."""
    cases: list[comparison.Case] = []
    counted: list[Shapes] = []
    # Shapes do not keep their graphs alive.
    graphs: list[Graph] = []
    shares: dict[str, utilisation.Shares] = {}
    swept: dict[str, sweeps.Times] = {}
    scaled: list[Row] = []
    pictures: list[Chart] = []
    twins = (*_TWINS, _APART)
    for whole, (one, graph, report) in zip(
        twins, loaded([each.of_run(quick) for each in twins], progress), strict=True
    ):
        shapes = Machine().shapes(graph)
        report(f"{one.label}: choices one at a time, GPUs", 0.0)
        swept[one.label] = sweeps.times(shapes)
        shares[one.label] = utilisation.shares(graph, one.scale / whole.scale)
        cases += comparison.measured(one.label, shapes, report)
        by_ranks = machine.phases(shapes)
        scaled += machine.ranks(one.label, by_ranks)
        pictures.append(machine.ranks_chart(one.label, by_ranks))
        counted.append(shapes)
        graphs.append(graph)
    chosen = tuners.choices(cases, counted)
    sized = dict(zip(dict.fromkeys(case.graph for case in cases), counted, strict=True))
    apart = [case for case in cases if case.graph == _APART.of_run(quick).label]
    averaged = [case for case in cases if case not in apart]
    rows = (
        *comparison.rows(averaged, apart),
        *comparison.winners(cases),
        *tuners.rows(chosen),
        *machine.over_host(averaged, sized, apart),
        *utilisation.rows(averaged, shares),
        *sweeps.rows(swept),
        *scaled,
        *machine.memory(),
        *machine.calibration(),
    )
    further = (utilisation.chart(cases, shares), tuners.chart(chosen), *sweeps.charts(swept))
    charts = (*comparison.charts(cases, rows), *further, *pictures)
    return Reproduction(work="pygim", source=_SOURCE, rows=rows, charts=charts)


def fit(quick: bool, progress: Progress = silent) -> Fit:
    """Return the machine that is nearest to the figures over the GraNDe-like scheme and over the host."""
    twins = [each.of_run(quick) for each in (*_TWINS, _APART)]
    graphs = {one.label: graph for one, graph, _ in loaded(twins, part(progress, 0.0, 0.6))}
    # Shapes do not keep their graphs alive.
    shapes = {label: Machine().shapes(graph) for label, graph in graphs.items()}
    # Only the last is no graph of the mean.
    *labels, apart = shapes
    averaged = {label: shapes[label] for label in labels}
    return nearest.search(averaged, {apart: shapes[apart]}, part(progress, 0.6, 1.0))
