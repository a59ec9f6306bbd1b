"""iSpLib: training epochs of PyG's models on a CPU, losses compared first, then timed in turns."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from onehop.bench.cases import Workload
from onehop.bench.models import ModelCase, ModelResult, compared
from onehop.bench.peers.base import import_reason
from onehop.bench.tasks import LearningTask
from onehop.bench.variants import ISPLIB, ONEHOP, PYG
from onehop.reproduce import beside_pyg
from onehop.reproduce.tables import Chart, Reproduction, Row, row
from onehop.reproduce.twins import Progress, Twin, silent

_SOURCE = (
    "M. S. H. Anik et al., iSpLib, short paper at the Web Conference 2024 (arXiv 2403.14853). Its abstract "
    "could be read; its figures by data set could not."
)
_PAPER_BEST = 27.0
MODELS = ("gcn", "sage", "gin")
TWINS = (Twin("arxiv", 0.25), Twin("reddit-mini", 0.1))
_WIDTHS = (32, 128)
_ROUNDS, _QUICK_ROUNDS = 7, 3


def reproduce(quick: bool, progress: Progress = silent) -> Reproduction:
    """Computes the figures of iSpLib.

    Args:
        quick: Use parts of the twins, one width and three rounds.
        progress: Told how far it is.
    """
    best = "training epoch over PyG, best"
    reason = import_reason("torch_geometric")
    if reason is not None:
        absent = row(best, "x", f"Needs PyG: {reason}.", paper=_PAPER_BEST)
        return Reproduction(work="isplib", source=_SOURCE, rows=(absent,))
    found = measured(quick, progress)
    ratios = [ratio.median for each in found if (ratio := each.speedup()) is not None]
    note = "The paper's is over PyTorch 2.1.0 and PyG 2.4.0 on its processors; ours is the best below."
    headline = row(best, "x", note, max(ratios, default=None), _PAPER_BEST)
    reason = ISPLIB.available()
    note = "`onehop bench models --peers pyg-isplib` measures it."
    beside = row("iSpLib's training epoch over ours", "x", f"Needs iSpLib: {reason}." if reason else note)
    return Reproduction(
        work="isplib", source=_SOURCE, rows=(headline, *rows(found), beside), charts=charts(found)
    )


def measured(quick: bool, progress: Progress) -> list[ModelResult]:
    """Every model on every graph."""
    cases = list(product(MODELS, _WIDTHS[:1] if quick else _WIDTHS))
    found: list[ModelResult] = []
    total = len(TWINS) * len(cases)
    for one in (each.of_run(quick) for each in TWINS):
        progress(f"{one.name}: loading", len(found) / total)
        task = replace(LearningTask.of(one.data(features=True)), name=one.label)
        workload = Workload(one.name, task.edge_index, task.x.size(0))
        for model, hidden in cases:
            progress(f"{one.name}: {model} {hidden}", len(found) / total)
            case = ModelCase(task, workload, model, hidden)
            found.append(compared(case, (PYG, ONEHOP), _QUICK_ROUNDS if quick else _ROUNDS)[0])
    return found


def rows(found: Sequence[ModelResult]) -> list[Row]:
    """A row for each model and graph: PyG's time over ours, and the quartiles of the rounds."""
    return [
        beside_pyg.row(
            f"training epoch over PyG, {one.model.upper()}, hidden {one.hidden}, {one.graph}",
            one,
            "ms under the patch; quartiles of the rounds.",
        )
        for one in found
    ]


def charts(found: Sequence[ModelResult]) -> tuple[Chart, ...]:
    """Milliseconds of an epoch, PyG beside ours; none where nothing was timed."""
    timed = [one for one in found if one.speedup() is not None]
    graphs = ", ".join(dict.fromkeys(one.graph for one in timed))
    widths = ", ".join(dict.fromkeys(str(one.hidden) for one in timed))
    title = f"A training epoch of two-layer models, hidden {widths}: {graphs}"
    by_label = {f"{one.model.upper()} {one.hidden} {one.graph}": one for one in timed}
    return beside_pyg.charts("epochs", title, by_label)
