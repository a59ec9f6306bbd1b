"""Whole training epochs: a plain PyG model alone, patched, and with the faster inputs of PyG itself."""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onehop import config
from onehop.bench.cases import Workload
from onehop.bench.peers.base import beta_warnings_ignored
from onehop.bench.runs import Order, run
from onehop.bench.tasks import Task, save_task
from onehop.bench.timing import Ratio, Times, measure_once
from onehop.bench.training import Training
from onehop.bench.variants import ONEHOP, PYG, Variant

# Epochs whose losses are compared before anything is timed, and how far they may be apart, relatively: Adam
# turns rounding errors of small gradients into steps.
CHECKED_EPOCHS = 3
LOSS_TOLERANCE = 1e-3
# A turn lasts at least so long, so that small graphs are timed over several epochs.
_TURN_S = 0.25
_MOST_EPOCHS = 20
# A variant that would fill more than this share of memory with messages is left out.
MEMORY_SHARE = 2
# Those of onehop.bench.plain_models.ATTENTION, which is not imported before PyG is needed.
ATTENTION_NAMES = ("gat", "gatv2", "transformer")


@dataclass
class ModelResult:
    """Measurements of one model on one graph.

    Attributes:
        graph: Its name.
        model: A key of :data:`onehop.bench.plain_models.MODELS`.
        hidden: Width between the layers.
        times: Of an epoch, by name of the variant.
        losses: Of the first epochs, by name of the variant.
        skipped: Why a variant was not run, by name.
        wrong: What is wrong with a variant's losses, by name; such a variant is not timed.
        peak_bytes: Most memory that training one epoch adds to a process of its own, by name of the variant.
    """

    graph: str
    model: str
    hidden: int
    times: dict[str, Times] = field(default_factory=dict)
    losses: dict[str, list[float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)

    def speedup(self, over: str = PYG.name) -> Ratio | None:
        """Time of ``over`` divided by onehop's; None if one of them was not timed."""
        if over not in self.times or ONEHOP.name not in self.times:
            return None
        return Ratio.of(self.times[over], self.times[ONEHOP.name])

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        ratios = {name: self.speedup(name) for name in self.times if name != ONEHOP.name}
        return {
            "graph": self.graph,
            "model": self.model,
            "hidden": self.hidden,
            "times": {name: times.to_dict() for name, times in self.times.items()},
            "speedup_over": {name: vars(ratio) for name, ratio in ratios.items() if ratio is not None},
            "losses": self.losses,
            "skipped": self.skipped,
            "wrong": self.wrong,
            "peak_bytes": self.peak_bytes,
        }


def measure(
    tasks: Sequence[Task],
    models: Sequence[str],
    hidden: Sequence[int],
    variants: Sequence[Variant],
    rounds: int,
    done: Callable[[ModelResult], None],
) -> list[ModelResult]:
    """Measures every model at every width on every graph; ``done`` is called after each."""
    results = []
    for task in tasks:
        workload = Workload(task.name, task.edge_index, task.x.size(0))
        for model in models:
            for width in hidden:
                results.append(measure_model(task, workload, model, width, variants, rounds))
                done(results[-1])
    return results


def measure_model(
    task: Task,
    workload: Workload,
    model: str,
    hidden: int,
    variants: Sequence[Variant],
    rounds: int,
    memory_bytes: int | None = None,
) -> ModelResult:
    """Compares the losses of the first epochs, then times those variants that agree, in turns.

    A turn enters the variant's context, trains one epoch that is not timed (so that graphs are cached and
    memory is warm again after the others), and then times one or more.

    Args:
        task: What is learnt.
        workload: The same graph, with what variants make of it.
        model: A key of :data:`onehop.bench.plain_models.MODELS`.
        hidden: Width between the layers.
        variants: The ways to train.
        rounds: Turns of each.
        memory_bytes: Most messages that a variant may make; None means half of the machine's memory.
    """
    result = ModelResult(task.name, model, hidden)
    limit = config.physical_memory_bytes() // MEMORY_SHARE if memory_bytes is None else memory_bytes
    runs: dict[str, tuple[Variant, Training]] = {}
    with beta_warnings_ignored():
        for variant in variants:
            reason = (
                variant.available()
                or _unsuited(variant, model)
                or _too_large(variant, task, model, hidden, limit)
            )
            if reason is not None:
                result.skipped[variant.name] = reason
                continue
            training = Training(model, task, hidden, edges=variant.edges(workload))
            variant.prepare(training.model)
            try:
                with variant.context():
                    result.losses[variant.name] = [training.epoch() for _ in range(CHECKED_EPOCHS)]
            except RuntimeError as error:
                result.wrong[variant.name] = f"fails to train: {str(error).splitlines()[0]}"
                continue
            runs[variant.name] = (variant, training)
    _compare(result, runs)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (variant, training) in runs.items():
            seconds[name].append(_turn(variant, training))
    result.times = {name: Times(tuple(values)) for name, values in seconds.items()}
    return result


def _turn(variant: Variant, training: Training) -> float:
    with variant.context():
        warm = measure_once(training.epoch)
        epochs = min(max(math.ceil(_TURN_S / warm), 1), _MOST_EPOCHS)
        return measure_once(training.epoch, epochs)


def _compare(result: ModelResult, runs: dict[str, tuple[Variant, Training]]) -> None:
    """Takes out of ``runs`` what does not train as plain PyG does (or, without it, as the first other)."""
    others = [name for name in runs if not name.startswith(ONEHOP.name)]
    judge = PYG.name if PYG.name in runs else next(iter(others), None)
    if judge is None:
        return
    expected = result.losses[judge]
    for name in list(runs):
        apart = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(result.losses[name], expected, strict=True))
        if not apart <= LOSS_TOLERANCE:  # NaN is wrong too
            result.wrong[name] = f"its losses are {apart:.2g} off those of {judge}"
            del runs[name]


def _unsuited(variant: Variant, model: str) -> str | None:
    """PyG's attention layers make the same messages from every kind of input."""
    if model in ATTENTION_NAMES and not variant.name.startswith((ONEHOP.name, PYG.name)):
        return "attention layers take the way of edge_index from every input"
    return None


def _too_large(variant: Variant, task: Task, model: str, hidden: int, limit: int) -> str | None:
    """The reason why its messages would not fit into memory.

    GCN keeps gathered, weighted and gradient rows of the layers' outputs; attention keeps three rows an edge
    of each layer, and has as many again of the wider one at its peak; the others gather the inputs.
    """
    if not variant.makes_messages:
        return None
    widest = max(hidden, task.num_classes)
    if model in ATTENTION_NAMES:
        columns = 3 * (hidden + task.num_classes) + 3 * widest
    else:
        columns = 3 * widest if model == "gcn" else max(task.x.size(1), 2 * hidden)
    needed = task.edge_index.size(1) * columns * 4
    if needed <= limit:
        return None
    return f"would need {needed / 1e9:.1f} GB of messages (limit {limit / 1e9:.1f} GB)"


def measure_peaks(task: Task, result: ModelResult) -> None:
    """Fills in ``peak_bytes`` for onehop and plain PyG, if they were timed: one epoch in a new process."""
    with tempfile.TemporaryDirectory(prefix="onehop-bench-") as folder:
        path = Path(folder) / "task.npz"
        save_task(task, path)
        for variant in (ONEHOP, PYG):
            if variant.name in result.times:
                order = Order(
                    str(path), result.model, variant is ONEHOP, result.hidden, 1, torch.get_num_threads()
                )
                finished = run(order, lambda: None)
                result.peak_bytes[variant.name] = finished.peak_bytes - finished.loaded_bytes
