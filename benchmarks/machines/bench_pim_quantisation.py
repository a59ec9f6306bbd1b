"""Accuracy of a trained GCN on Cora when its sums run on a near-bank machine in integers.

    ONEHOP_DATA=... python -m benchmarks.machines.bench_pim_quantisation [--seeds 5]
        [--json benchmarks/results/machines/pim_quantisation.json]

The model is trained in float32 on the CPU, then asked on the machine with each dtype; the second figure
trains it on the machine in that dtype as well, gradients included.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import onehop
from benchmarks.harness import Benchmark, Options, Row
from onehop import datasets
from onehop.bench.tasks import LearningTask
from onehop.bench.training import Training
from onehop.machines.pim import Machine, PimPlan

INTEGERS = ("int32", "int16", "int8")
CASES = [("float32", "tensor"), *((dtype, scale) for dtype in INTEGERS for scale in ("tensor", "column"))]


def on(dtype: str, scale: str) -> AbstractContextManager[object]:
    """The patch with a machine of that dtype."""
    plan = PimPlan(sp=1, ds=32, dtype=None if dtype == "float32" else dtype, scale=scale)
    return onehop.patch(machine=Machine(plan=plan))


def train(task: LearningTask, seed: int, epochs: int) -> Training:
    """Kipf and Welling's model, 2017, after some epochs."""
    training = Training("cora-gcn", task, 16, seed)
    for _ in range(epochs):
        training.epoch()
    return training


def rows(options: Options) -> Iterator[Row]:
    """The accuracy of each seed's model on the CPU and in every dtype."""
    task = LearningTask.of(datasets.from_file(Path(os.environ["ONEHOP_DATA"]) / "cora.npz"))
    for seed in range(options.seeds):
        with onehop.patch():
            model = train(task, seed, options.epochs)
            yield {"name": "cpu float32", "seed": seed, "asked": model.test_accuracy()}
        for dtype, scale in CASES:
            with on(dtype, scale):
                name = dtype if dtype == "float32" else f"{dtype}, by {scale}"
                row = {"name": name, "seed": seed, "asked": model.test_accuracy()}
                if seed == 0:
                    row["trained"] = train(task, seed, options.epochs).test_accuracy()
            yield row


def by_name(options: Options, rows: list[Row]) -> Row:
    """The accuracies of all seeds, by machine."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for key in row.keys() & {"asked", "trained"}:
            found.setdefault(row["name"], {}).setdefault(key, []).append(row[key])
    return {"accuracy": found}


BENCHMARK = Benchmark(
    "benchmarks/machines/bench_pim_quantisation.py",
    rows,
    "in the machine | name; seed; accuracy | asked | {:.2%}; trained there | trained | {:.2%}",
    {"seeds": 5, "epochs": 200},
    key=None,
    more=by_name,
)

if __name__ == "__main__":
    BENCHMARK.main()
