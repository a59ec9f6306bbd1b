"""Whole training epochs: a PyG model without the patch, with it, and with PyG's own faster inputs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from onehop import config, sizes
from onehop.bench.cases import Workload
from onehop.bench.floors import Breakdown, Roofs, shares
from onehop.bench.peers.base import beta_warnings_ignored
from onehop.bench.recipes import recipe
from onehop.bench.runs import Order, run, saved
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Compared, Ratio, in_turns, measure_once, within
from onehop.bench.training import Training, drawn_by, start
from onehop.bench.variants import INPUTS_OF_PYG, ONEHOP, PYG, SPARSE_TENSOR, TORCH_CSR, Variant
from onehop.bench.work import count

# Epochs whose losses are compared before anything is timed; all variants draw the same random numbers in
# them.
CHECKED_EPOCHS = 3
_EPOCHS_SEED = 1
# A turn lasts at least this many seconds, so that small graphs are timed over several epochs.
_TURN_S = 0.25
_MOST_EPOCHS = 20
# A variant whose messages would fill more than this fraction (one over the number) of memory is left out.
MEMORY_SHARE = 2

# Runs by name of the variant.
Runs = dict[str, tuple[Variant, Training]]


@dataclass(frozen=True)
class ModelCase:
    """A model to be trained on a graph.

    Attributes:
        task: The learning task.
        workload: The task's graph, with the variants' own forms of it.
        model: A key of :data:`onehop.bench.recipes.RECIPES`.
        hidden: Width between the layers.
    """

    task: LearningTask
    workload: Workload
    model: str
    hidden: int


@dataclass
class ModelResult(Compared):
    """Measurements of one model on one graph.

    Attributes:
        graph: The graph's name.
        model: A key of :data:`onehop.bench.recipes.RECIPES`.
        hidden: Width between the layers.
        losses: Losses of the first epochs, by name of the variant.
        peak_bytes: Maximum memory that training one epoch adds in a separate process, by name of the variant.
        breakdown: The parts of onehop's epoch, with their floors; None if onehop was not timed.
        sampler: The sampler that drew the mini-batches, also for onehop; None if the whole graph is used at
            once.
    """

    graph: str
    model: str
    hidden: int
    losses: dict[str, list[float]] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    breakdown: Breakdown | None = None
    sampler: str | None = None

    def speedup(self, over: str | None = PYG.name) -> Ratio | None:
        """Time of ``over`` divided by onehop's; None if one of them was not timed."""
        return self.ratio(over, ONEHOP.name)

    @property
    def as_authors(self) -> str | None:
        """The name of PyG's variant with the input of the model's authors; None if it was not timed."""
        # ToSparseTensor makes a matrix of torch's where torch_sparse is not installed.
        inputs = (SPARSE_TENSOR, TORCH_CSR) if recipe(self.model).adj_t else (PYG,)
        return next((variant.name for variant in inputs if variant.name in self.times), None)

    @property
    def best_of_pyg(self) -> str | None:
        """The name of PyG's fastest variant; None if none was timed."""
        timed = [variant.name for variant in INPUTS_OF_PYG if variant.name in self.times]
        return min(timed, key=lambda name: self.times[name].median_s, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the result, ready for JSON."""
        ratios = {name: self.speedup(name) for name in self.times if name != ONEHOP.name}
        return {
            "graph": self.graph,
            "model": self.model,
            "hidden": self.hidden,
            "sampler": self.sampler,
            "as_authors": self.as_authors,
            "best_of_pyg": self.best_of_pyg,
            "speedup_over": {name: vars(ratio) for name, ratio in ratios.items() if ratio is not None},
            "losses": self.losses,
            "peak_bytes": self.peak_bytes,
            "breakdown": self.breakdown and self.breakdown.to_dict(),
            **super().to_dict(),
        }


def measure(
    task: LearningTask, cases: Iterable[tuple[str, int]], variants: Sequence[Variant], rounds: int
) -> Iterator[ModelResult]:
    """Measure models, each at a width, on one graph, and the memory that each takes; yield each result."""
    workload = Workload(task.name, task.edge_index, task.x.size(0))
    for model, width in cases:
        result = measure_model(ModelCase(task, workload, model, width), variants, rounds)
        measure_peaks(task, result)
        yield result


def measure_model(case: ModelCase, variants: Sequence[Variant], rounds: int) -> ModelResult:
    """Compare and time as :func:`compared` does; profile epochs of onehop, and measure their floor."""
    result, runs = compared(case, variants, rounds)
    if ONEHOP.name in runs:
        variant, training = runs[ONEHOP.name]
        with variant.context():
            seen = shares(training.epoch, _epochs(training))
        floor = None
        if not recipe(case.model).fan_out:  # the floor of an epoch in mini-batches is not known
            roofs: Roofs = case.workload.once("roofs", lambda: Roofs(case.workload))
            floor = roofs.floor(count(case.model, case.task, case.hidden))
        result.breakdown = Breakdown(result.times[variant.name].median_s, seen, floor)
    return result


def compared(
    case: ModelCase, variants: Sequence[Variant], rounds: int, memory_bytes: int | None = None
) -> tuple[ModelResult, Runs]:
    """Compare the losses of the first epochs, then time the variants that agree, in turns.

    All variants draw the same random numbers in the first epochs, so that they drop the same entries. A turn
    enters the variant's context, trains one epoch that is not timed (so that graphs are cached and memory is
    warm again after the other variants), and then times one or more epochs.

    Args:
        case: The model, its width and the task.
        variants: The ways to train.
        rounds: Number of turns for each variant.
        memory_bytes: Maximum bytes of messages in a variant; None means half of the machine's memory.

    Returns:
        The result, and the training of each variant that was timed.
    """
    drawn = drawn_by() if recipe(case.model).fan_out else None
    result = ModelResult(case.task.name, case.model, case.hidden, sampler=drawn)
    limit = config.physical_memory_bytes() // MEMORY_SHARE if memory_bytes is None else memory_bytes
    runs: Runs = {}
    with beta_warnings_ignored():
        for variant in variants:
            reason = variant.available() or _unsuited(variant, case.model) or _too_large(variant, case, limit)
            if reason is not None:
                result.skipped[variant.name] = reason
                continue
            edges = variant.edges(case.workload)
            training = start(case.model, case.task, case.hidden, edges=edges, autocast=variant.autocast)
            variant.prepare(training.model)
            torch.manual_seed(_EPOCHS_SEED)
            try:
                with variant.context():
                    result.losses[variant.name] = [training.epoch() for _ in range(CHECKED_EPOCHS)]
            except RuntimeError as error:
                result.wrong[variant.name] = f"fails to train: {str(error).splitlines()[0]}"
                continue
            runs[variant.name] = (variant, training)
    _judge(result, runs)
    turns = {
        name: partial(within, variant.context, partial(_turn, training))
        for name, (variant, training) in runs.items()
    }
    result.times = in_turns(turns, rounds)
    return result, runs


def _turn(training: Training) -> float:
    return measure_once(training.epoch, _epochs(training))


def _epochs(training: Training) -> int:
    """Train an epoch that is not counted, and return how many epochs fill a turn."""
    return min(max(math.ceil(_TURN_S / measure_once(training.epoch)), 1), _MOST_EPOCHS)


def _judge(result: ModelResult, runs: Runs) -> None:
    """Remove the variants from ``runs`` that do not train as plain PyG does (or the first other variant)."""
    others = [name for name in runs if not name.startswith(ONEHOP.name)]
    judge = PYG.name if PYG.name in runs else next(iter(others), None)
    if judge is None:
        return
    expected = result.losses[judge]
    for name, (variant, _) in list(runs.items()):
        apart = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(result.losses[name], expected, strict=True))
        if not apart <= variant.tolerance:  # the condition is also true for NaN
            result.wrong[name] = f"its losses are {apart:.2g} off those of {judge}"
            del runs[name]


def _unsuited(variant: Variant, model: str) -> str | None:
    """Return why a variant does not suit a model, or None; attention ignores the kind of its input."""
    if variant.takes_edge_index:
        return None
    if recipe(model).attention:
        return "attention layers take the way of edge_index from every input"
    if recipe(model).fan_out:
        return "mini-batches come as edge_index"
    return None


def _too_large(variant: Variant, case: ModelCase, limit: int) -> str | None:
    """Return why a variant's messages would not fit into memory, or None; messages of mini-batches do fit."""
    of_model, task = recipe(case.model), case.task
    if not variant.makes_messages or of_model.fan_out:
        return None
    needed = of_model.message_bytes(task.edge_index.size(1), task.x.size(1), case.hidden, task.num_classes)
    if needed <= limit:
        return None
    return f"would need {sizes.readable(needed)} of messages (limit {sizes.readable(limit)})"


def measure_peaks(task: LearningTask, result: ModelResult) -> None:
    """Fill in ``peak_bytes`` for onehop, plain PyG and the best of PyG: one epoch in a new process."""
    ways = (ONEHOP.name, PYG.name, result.best_of_pyg)
    names = dict.fromkeys(name for name in ways if name in result.times)
    with saved(task) as path:
        for name in names:
            done = run(Order(path, result.model, name, result.hidden, epochs=1), lambda: None)
            result.peak_bytes[name] = done.peak_bytes - done.loaded_bytes
