"""Training epochs of iSpLib's four models, divided by ours, for each baseline of its scripts."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import torch

from onehop.bench.cases import Workload
from onehop.bench.models import ModelCase, ModelResult, compared
from onehop.bench.tasks import LearningTask
from onehop.bench.variants import FURTHER, ISPLIB, ONEHOP, PYG, SPARSE_TENSOR, TORCH_CSR
from onehop.reproduce import beside_pyg
from onehop.reproduce.tables import Chart, Row
from onehop.reproduce.twins import Progress, Twin, silent

MODELS = ("gcn", "sage-sum", "sage", "gin")
# Parts of the named graphs on which PyG's slowest epoch takes seconds on two threads.
TWINS = (
    Twin("reddit", 0.02, scale=0.05),
    Twin("reddit2", 0.05, scale=0.25),
    Twin("proteins", 0.04, scale=0.1),
    Twin("amazonproducts", 0.005, scale=0.025),
)
_HIDDEN = 32
_ROUNDS = 3
# Maximum bytes of messages by edge_index in a quick run; larger epochs take ten seconds and more.
_QUICK_BYTES = 1 << 30
_COMPILED = FURTHER["pyg-compiled"]
# The baselines: edge_index, torch's sparse product, torch.compile, torch_sparse's kernels.
BASELINES = tuple(each.name for each in (PYG, TORCH_CSR, _COMPILED, SPARSE_TENSOR))


def measured(quick: bool, progress: Progress = silent) -> list[ModelResult]:
    """Measure every model on every graph in every available way; compiling takes half a minute per model."""
    ways = (ONEHOP, PYG, TORCH_CSR, SPARSE_TENSOR, ISPLIB, *(() if quick else (_COMPILED,)))
    results: list[ModelResult] = []
    total = len(TWINS) * len(MODELS)
    for one in (each.of_run(quick) for each in TWINS):
        progress(f"{one.name}: loading", len(results) / total)
        task = replace(LearningTask.of(one.data(features=True)), name=one.label)
        workload = Workload(one.name, task.edge_index, task.x.size(0))
        for model in MODELS:
            progress(f"{one.name}: {model}", len(results) / total)
            case = ModelCase(task, workload, model, _HIDDEN)
            results.append(compared(case, ways, _ROUNDS, _QUICK_BYTES if quick else None)[0])
    return results


def threads() -> str:
    """Return the number of threads, in words."""
    count = torch.get_num_threads()
    return "one thread" if count == 1 else f"{count} threads"


def rows(results: Sequence[ModelResult]) -> list[Row]:
    """Return a row per model, graph and baseline: its time divided by ours, and the rounds' quartiles."""
    return [
        beside_pyg.row(
            f"training epoch over {name}, {one.model}, hidden {_HIDDEN}, {one.graph}",
            one,
            "ms under the patch; quartiles of the rounds.",
            name,
        )
        for one, name in product(results, BASELINES)
        if name in {**one.times, **one.skipped, **one.wrong}
    ]


def charts(results: Sequence[ModelResult]) -> tuple[Chart, ...]:
    """Return a chart with the ms of an epoch, PyG and ours; no chart if nothing was timed."""
    title = f"A training epoch of two-layer models, hidden {_HIDDEN}"
    return beside_pyg.charts("epochs", title, {f"{one.model} {one.graph}": one for one in results})
