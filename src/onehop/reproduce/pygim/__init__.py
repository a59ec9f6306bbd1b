"""PyGim: aggregation on near-bank cores, on twins of the paper's graphs."""

from onehop.graph import Graph
from onehop.machines.pim import Machine
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.pygim import comparison, machine
from onehop.reproduce.tables import Chart, Reproduction, Row
from onehop.reproduce.twins import Progress, Twin, loaded, silent

_SOURCE = (
    "C. Giannoula et al., PyGim, SIGMETRICS 2025 (arXiv 2402.16731). Its abstract and its repository could "
    "be read; its evaluation could not."
)
_TWINS = (Twin("reddit", 0.05), Twin("proteins", 0.05), Twin("arxiv", 0.5))


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Computes the figures of PyGim.

    Args:
        quick: Use parts of the twins.
        progress: Told how far it is.
    """
    cases: list[comparison.Case] = []
    counted: list[Shapes] = []
    # Shapes do not keep their graphs alive.
    kept: list[Graph] = []
    scaled: list[Row] = []
    pictures: list[Chart] = []
    for one, graph, told in loaded([each.of_run(quick) for each in _TWINS], progress):
        shapes = Machine().shapes(graph)
        cases += comparison.measured(one.label, shapes, told)
        by_ranks = machine.phases(shapes)
        scaled += machine.ranks(one.label, by_ranks)
        pictures.append(machine.ranks_chart(one.label, by_ranks))
        counted.append(shapes)
        kept.append(graph)
    rows = (
        *comparison.rows(cases),
        *comparison.winners(cases),
        *comparison.regret(cases, counted),
        *machine.over_host(cases, counted),
        *scaled,
        *machine.memory(),
        *machine.calibration(),
    )
    return Reproduction(
        work="pygim", source=_SOURCE, rows=rows, charts=(*comparison.charts(cases, rows), *pictures)
    )
