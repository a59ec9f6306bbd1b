"""Drawing mini-batches, and training on them: onehop's sampler beside the one that PyG has here.

    python -m benchmarks.minibatch.bench_sampler [--graph twin:arxiv] [--fan-out 15,10] [--batches 40]
        [--epoch-batches N]

PyG's is that of pyg-lib or torch-sparse. ``draw`` is the sampler alone, from seeds to numbers of nodes and
edges; ``batch`` is what PyG's ``NeighborLoader`` hands out, with features, in one process; ``all neighbours``
draws with a fan-out of -1. All draw for the same seeds. Each way's batches are checked before any time is
taken: the edges are edges of the graph, and as many a node as asked for.

``epoch`` trains GraphSAGE of two layers on all training nodes, or on ``--epoch-batches`` batches of them:
unpatched on batches of PyG's sampler, and patched on batches of ours. A step is forward, backward and Adam;
the rest of an epoch is making batches. The gain of the epochs should be the gain of the steps, or nearly:
drawing must not hold training back. The gradients of both are compared first, on one batch.

Figures stand beside their targets. Without pyg-lib and torch-sparse onehop stands alone, and the lines say
so.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor

import onehop
from benchmarks import columns, harness
from benchmarks.harness import TOLERANCE, Benchmark, Option, Options, Row, Way
from benchmarks.minibatch.loaders import SEEDS, Data, draws, loader_of, whole
from onehop import datasets
from onehop.bench.plain_models import SAGE
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, Times, in_turns
from onehop.integrations.pyg.operators import has_pyg_lib
from onehop.tables import Column

HIDDEN = 256
# Draws over PyG's, and the epoch's gain over the step's, at least.
DRAW_TARGET, EPOCH_TARGET = 2.0, 0.95


def peer() -> str | None:
    """What PyG draws with here; None if it cannot."""
    if has_pyg_lib():
        return "pyg-lib"
    return "torch-sparse" if torch_geometric.typing.WITH_TORCH_SPARSE else None


def check(data: Data, batch: Any, fan_out: list[int]) -> None:
    """Ends the program unless the batch has edges of the graph, as many as it should for each seed."""
    assert data.edge_index is not None
    same = torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes or 0)[
        batch.n_id[: batch.batch_size]
    ]
    expected = degrees if fan_out[0] < 0 else degrees.clamp(max=fan_out[0])
    found = torch.bincount(batch.edge_index[1], minlength=batch.batch_size)[: batch.batch_size]
    if not same or not torch.equal(found, expected):
        raise SystemExit("a batch is not what was asked for; nothing was measured.")


def measured(name: str, data: Data, fan_out: list[int], seeds: Tensor, options: Options) -> Row:
    """One row of results."""
    take = draws if name != "batch" else whole
    other = peer()
    ways: dict[str, Way] = {} if other is None else {other: partial(onehop.patch, sampler=False)}
    ways["onehop"] = partial(onehop.patch, sampler=True)
    for way in ways.values():
        with way():
            batch = next(iter(loader_of(data, fan_out, seeds)))
            check(data, batch, fan_out)

    def turn() -> float:
        return take(loader_of(data, fan_out, seeds), options.batches)

    times = harness.in_ways(ways, turn, options.rounds)
    return {
        "case": name, "fan_out": fan_out, "nodes": batch.num_nodes, "edges": batch.num_edges,
        **harness.compared(times, other),
    }  # fmt: skip


@dataclass(frozen=True)
class Epoch:
    """Seconds of an epoch, and of the steps in it."""

    seconds: float
    steps: float


@dataclass(frozen=True)
class Training:
    """GraphSAGE on the batches of a loader."""

    data: Data
    classes: int
    fan_out: list[int]
    seeds: Tensor

    def gradients(self, way: Way, batch: Any) -> list[Tensor]:
        """Of every parameter, on one batch, without dropout or any other chance."""
        with way():
            model = self._model()
            self._loss(model, batch.clone()).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    def epoch(self, way: Way) -> Epoch:
        """Trains on every seed once; one batch before them is not counted."""
        with way():
            model = self._model()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            loader = loader_of(self.data, self.fan_out, self.seeds)
            for batch in loader:
                self._step(model, optimizer, batch)
                break
            steps, begin = 0.0, time.perf_counter()
            for batch in loader:
                made = time.perf_counter()
                self._step(model, optimizer, batch)
                steps += time.perf_counter() - made
            return Epoch(time.perf_counter() - begin, steps)

    def _model(self) -> SAGE:
        torch.manual_seed(0)
        return SAGE(self.data.num_features, HIDDEN, self.classes)

    def _loss(self, model: SAGE, batch: Any) -> Tensor:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    def _step(self, model: SAGE, optimizer: torch.optim.Optimizer, batch: Any) -> None:
        optimizer.zero_grad()
        self._loss(model, batch).backward()
        optimizer.step()


def check_gradients(training: Training) -> float:
    """Ends the program unless both ways have the same gradients; their largest difference, relative."""
    with onehop.patch(sampler=True):
        batch = next(iter(loader_of(training.data, training.fan_out, training.seeds)))
    expected, got = (training.gradients(way, batch) for way in (nullcontext, onehop.patch))
    scale = max(float(each.abs().max()) for each in expected)
    worst = max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True)) / scale
    if not worst <= TOLERANCE:
        raise SystemExit(f"gradients differ by {worst:.1e} of the largest; no epoch was measured.")
    return worst


def epochs(training: Training, rounds: int) -> Row:
    """Whole epochs and their steps."""
    difference, other = check_gradients(training), peer()
    slow = None if other is None else f"PyG with {other}"
    ways: dict[str, Way] = {} if slow is None else {slow: nullcontext}
    ways["onehop"] = partial(onehop.patch, sampler=True)
    found: dict[str, list[Epoch]] = {name: [] for name in ways}

    def turn(name: str) -> float:
        found[name].append(training.epoch(ways[name]))
        return found[name][-1].seconds

    whole = in_turns({name: partial(turn, name) for name in ways}, rounds)
    steps = {name: Times(tuple(each.steps for each in turns)) for name, turns in found.items()}
    row: Row = {
        "case": "epoch", "fan_out": training.fan_out, "seeds": training.seeds.numel(), "hidden": HIDDEN,
        "difference": difference, **harness.compared(whole, slow),
        "step_seconds": {name: times.to_dict() for name, times in steps.items()},
    }  # fmt: skip
    if slow is None:
        return row
    # Each epoch's gain over the gain of the steps in it.
    gains, of_steps = (
        Times(tuple(a / b for a, b in zip(times[slow].seconds, times["onehop"].seconds, strict=True)))
        for times in (whole, steps)
    )
    return row | {
        **harness.spread(Ratio.of(steps[slow], steps["onehop"]), "step_speedup", "step_speedup_quartiles"),
        **harness.spread(Ratio.of(gains, of_steps), "epoch_over_step", "epoch_over_step_quartiles"),
    }


def targets(rows: list[Row]) -> list[Row]:
    """Return the targets beside what was measured; empty where there was no peer."""
    by_case = {row["case"]: row for row in rows}
    reached = []
    for what, case, key, target in TARGETS:
        found = by_case[case].get(key)
        if found is not None:
            reached.append({"what": what, "target": target, "found": found, "reached": found >= target})
    return reached


def rows(options: Options) -> Iterator[Row]:
    """Draws, batches, and epochs."""
    torch.manual_seed(0)
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    seeds = torch.randperm(task.x.size(0))[: SEEDS * options.batches]
    for name in ("draw", "batch", "all neighbours"):
        fan_out = [-1] * len(options.fan_out) if name == "all neighbours" else options.fan_out
        yield measured(name, data, fan_out, seeds, options)
    train = task.train_mask.nonzero().view(-1)
    if options.epoch_batches is not None:
        train = train[: SEEDS * options.epoch_batches]
    yield epochs(Training(data, task.num_classes, options.fan_out, train), options.rounds)


def notes(options: Options, rows: list[Row]) -> Iterator[str]:
    """The targets; and whether PyG can draw at all."""
    for each in options.noted["targets"]:
        verdict = "reached" if each["reached"] else "not reached"
        yield f"target: {each['what']}: {each['found']:.2f}, at least {each['target']:g}: {verdict}"
    if peer() is None:
        yield "PyG has nothing to draw with here; no target was measured."


def _of_peer(key: str) -> Any:
    return lambda row: next(
        (taken["median_s"] for name, taken in row.get(key, {}).items() if name != "onehop"), None
    )


TARGETS = (
    ("draws over PyG's sampler", "draw", "speedup", DRAW_TARGET),
    ("gain of the epoch over the gain of its steps", "epoch", "epoch_over_step", EPOCH_TARGET),
)
BENCHMARK = Benchmark(
    "bench sampler",
    rows,
    columns.of(
        "case; fan-out | fan_out | list; nodes; edges; onehop, ms | seconds/onehop/median_s | ms; "
        "over PyG | speedup | gain speedup_quartiles; steps, ms | step_seconds/onehop/median_s | ms; "
        "steps over PyG | step_speedup | gain step_speedup_quartiles",
        Column("PyG, ms", _of_peer("seconds"), columns.FORMS["ms"]),
        Column("PyG's steps, ms", _of_peer("step_seconds"), columns.FORMS["ms"]),
    ),
    {
        "graph": "twin:arxiv",
        "fan_out": (15, 10),
        "batches": 40,
        "epoch_batches": Option(None, "batches of an epoch; all training nodes by default", kind=int),
    },
    rounds=5,
    kept=("graph",),
    finish=lambda options, rows: {"targets": targets(rows)},
    notes=notes,
)

if __name__ == "__main__":
    BENCHMARK.main()
