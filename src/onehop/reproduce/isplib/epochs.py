"""Training epochs with PyG alone and under the patch: losses compared first, then timed in turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from onehop import datasets
from onehop.bench.cases import Workload
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, Times, in_turns, measure_once
from onehop.bench.training import Training, start
from onehop.bench.variants import LOSS_TOLERANCE, ONEHOP, PYG, Variant
from onehop.reproduce import beside_pyg
from onehop.reproduce.graphs import label
from onehop.reproduce.progress import Progress
from onehop.reproduce.rows import Chart, Row

MODELS = ("gcn", "sage", "gin")
# Twin, and the part of it that a quick run uses.
_GRAPHS = {"arxiv": 0.25, "reddit-mini": 0.1}
_WIDTHS = (32, 128)
_ROUNDS, _QUICK_ROUNDS = 7, 3
_CHECKED_EPOCHS = 2
_SEED = 1


@dataclass(frozen=True, slots=True)
class Epoch:
    """One model on one graph.

    Attributes:
        graph: Name of the twin.
        model: Its name.
        hidden: Width between the layers.
        times: Of an epoch, by name of the variant; empty where the losses differ.
        apart: Largest relative difference of the losses.
    """

    graph: str
    model: str
    hidden: int
    times: dict[str, Times]
    apart: float

    @property
    def over_pyg(self) -> Ratio | None:
        """PyG's time over ours; None where the losses differ."""
        return Ratio.of(self.times[PYG.name], self.times[ONEHOP.name]) if self.times else None


def measured(quick: bool, progress: Progress) -> list[Epoch]:
    """Every model on every graph."""
    widths = _WIDTHS[:1] if quick else _WIDTHS
    found: list[Epoch] = []
    total = len(_GRAPHS) * len(MODELS) * len(widths)
    for name, part in _GRAPHS.items():
        scale = part if quick else 1.0
        progress(f"{name}: loading", len(found) / total)
        task = LearningTask.of(datasets.load(f"twin:{name}", scale=scale))
        workload = Workload(name, task.edge_index, task.x.size(0))
        for model in MODELS:
            for hidden in widths:
                progress(f"{name}: {model} {hidden}", len(found) / total)
                rounds = _QUICK_ROUNDS if quick else _ROUNDS
                found.append(_epoch(label(name, scale), task, workload, model, hidden, rounds))
    return found


def _epoch(graph: str, task: LearningTask, workload: Workload, model: str, hidden: int, rounds: int) -> Epoch:
    runs: dict[str, tuple[Variant, Training]] = {}
    losses: dict[str, list[float]] = {}
    for variant in (PYG, ONEHOP):
        training = start(model, task, hidden, edges=variant.edges(workload))
        torch.manual_seed(_SEED)
        with variant.context():
            losses[variant.name] = [training.epoch() for _ in range(_CHECKED_EPOCHS)]
        runs[variant.name] = (variant, training)
    pairs = zip(losses[ONEHOP.name], losses[PYG.name], strict=True)
    apart = max(abs(ours - theirs) / max(1.0, abs(theirs)) for ours, theirs in pairs)
    if not apart <= LOSS_TOLERANCE:  # NaN differs too
        return Epoch(graph, model, hidden, {}, apart)
    turns = {name: partial(_turn, *run) for name, run in runs.items()}
    return Epoch(graph, model, hidden, in_turns(turns, rounds), apart)


def _turn(variant: Variant, training: Training) -> float:
    """Seconds of an epoch, after one that is not timed."""
    with variant.context():
        training.epoch()
        return measure_once(training.epoch)


def rows(found: Sequence[Epoch]) -> list[Row]:
    """A row for each model and graph: PyG's time over ours, and the quartiles of the rounds."""
    return [_row(one) for one in found]


def _row(one: Epoch) -> Row:
    figure = f"training epoch over PyG, {one.model.upper()}, hidden {one.hidden}, {one.graph}"
    if not one.times:
        return Row(figure=figure, unit="x", note=f"Not timed: the losses differ by {one.apart:.2g}.")
    return beside_pyg.row(figure, one.times, "ms under the patch; quartiles of the rounds.")


def charts(found: Sequence[Epoch]) -> tuple[Chart, ...]:
    """Milliseconds of an epoch, PyG beside ours; none where nothing was timed."""
    timed = [one for one in found if one.times]
    if not timed:
        return ()
    graphs = ", ".join(dict.fromkeys(one.graph for one in timed))
    widths = ", ".join(dict.fromkeys(str(one.hidden) for one in timed))
    title = f"A training epoch of two-layer models, hidden {widths}: {graphs}"
    times = {f"{one.model.upper()} {one.hidden} {one.graph}": one.times for one in timed}
    return (beside_pyg.chart("epochs", title, times),)
