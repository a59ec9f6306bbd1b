"""Patched models in bfloat16 autocast beside patched float32: epochs in turns, and accuracy after training.

    python -m benchmarks.models.bench_bfloat16 [--models ogb-gcn,ogb-sage] [--graph twin:arxiv] [--hidden 256]
                                               [--rounds 5] [--epochs 30] [--seeds 3] [--threads N]
                                               [--json FILE]

The models are those of ``onehop bench models``, by default the Open Graph Benchmark's for arxiv. A turn is
one epoch: forward, backward and a step of Adam; both precisions take turns, each with a model and an
optimiser of its own. Parameters are float32 in both. ``--epochs 0`` leaves accuracy out.
"""

from collections.abc import Iterator
from functools import partial

import torch

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import datasets
from onehop.bench.recipes import RECIPES
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, in_turns, measure_once
from onehop.bench.training import Training

WARM = 3
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


def accuracies(task: LearningTask, name: str, options: Options) -> dict[str, list[float]]:
    """Test accuracies by precision, one a seed."""
    found: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for seed in range(options.seeds):
        for precision, dtype in PRECISIONS.items():
            training = Training(name, task, options.hidden, seed, autocast=dtype)
            for _ in range(options.epochs):
                training.epoch()
            found[precision].append(training.test_accuracy())
    return found


def rows(options: Options) -> Iterator[Row]:
    """Measures the epochs of every model in both precisions, and trains it."""
    task = LearningTask.of(datasets.load(options.graph))
    with onehop.patch():
        for name in options.models:
            runs = {
                key: Training(name, task, options.hidden, autocast=dtype) for key, dtype in PRECISIONS.items()
            }
            for run in runs.values():
                measure_once(run.epoch, WARM)
            turns = {key: partial(measure_once, run.epoch) for key, run in runs.items()}
            times = in_turns(turns, options.rounds)
            yield {
                "model": name,
                **{f"{key}_ms": taken.median_s * 1e3 for key, taken in times.items()},
                **harness.spread(Ratio.of(times["float32"], times["bfloat16"])),
                **({"accuracy": accuracies(task, name, options)} if options.epochs else {}),
            }


BENCHMARK = Benchmark(
    "benchmarks/models/bench_bfloat16.py",
    rows,
    "model; float32, ms | float32_ms | {:.1f}; bfloat16, ms | bfloat16_ms | {:.1f}; "
    "gain | ratio | gain quartiles; accuracies, float32 | accuracy/float32 | list; "
    "bfloat16 | accuracy/bfloat16 | list",
    {
        "models": Option(("ogb-gcn", "ogb-sage", "ogb-gat"), known=tuple(RECIPES)),
        "graph": Option("twin:arxiv", "a data set with features and labels"),
        "hidden": 256,
        "epochs": Option(30, "of training before accuracy is measured"),
        "seeds": 3,
    },
    key="cases",
    rounds=5,
)

if __name__ == "__main__":
    BENCHMARK.main()
