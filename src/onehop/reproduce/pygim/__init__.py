"""PyGim: aggregation on near-bank cores, on twins of the paper's graphs."""

from onehop.graph import Graph
from onehop.machines.pim import Machine
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.pygim import comparison, machine
from onehop.reproduce.tables import Chart, Reproduction, Row
from onehop.reproduce.twins import Progress, label, part, silent, twin

_SOURCE = (
    "C. Giannoula et al., PyGim, SIGMETRICS 2025 (arXiv 2402.16731). Its abstract and its repository could "
    "be read; its evaluation could not."
)
# Twin, and the part of it that a quick run uses.
_GRAPHS = {"reddit": 0.05, "proteins": 0.05, "arxiv": 0.5}


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
    for number, (name, share) in enumerate(_GRAPHS.items()):
        scale = share if quick else 1.0
        begin, middle, end = ((number + done) / len(_GRAPHS) for done in (0.0, 0.3, 0.9))
        graph = twin(name, scale, part(progress, begin, middle))
        shapes = Machine().shapes(graph)
        told_name = label(name, scale)
        cases += comparison.measured(told_name, shapes, part(progress, middle, end))
        by_ranks = machine.phases(shapes)
        scaled += machine.ranks(told_name, by_ranks)
        pictures.append(machine.ranks_chart(told_name, by_ranks))
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
