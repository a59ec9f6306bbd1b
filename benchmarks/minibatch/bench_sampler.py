"""Drawing mini-batches, and training on them: onehop's sampler beside the one that PyG has here.

    python benchmarks/minibatch/bench_sampler.py [--graph twin:arxiv] [--fan-out 15,10] [--batches 40]
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

import argparse
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.plain_models import SAGE
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, Times, in_turns, quantile

with warnings.catch_warnings():
    # PyG calls torch.jit.script while it is imported, which newer releases of torch deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.typing
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

SEEDS, HIDDEN = 1024, 256
# Relative to the largest gradient: float32, added up in another order.
TOLERANCE = 1e-3
# Draws over PyG's, and the epoch's gain over the step's, at least.
DRAW_TARGET, EPOCH_TARGET = 2.0, 0.95

Way = Callable[[], AbstractContextManager[Any]]


def peer() -> str | None:
    """What PyG draws with here; None if it cannot."""
    if torch_geometric.typing.WITH_PYG_LIB:
        return "pyg-lib"
    return "torch-sparse" if torch_geometric.typing.WITH_TORCH_SPARSE else None


def loader_of(data: Data, fan_out: list[int], seeds: Tensor) -> Any:
    """PyG's loader; whoever draws for it is decided when it does."""
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours.
        warnings.simplefilter("ignore", UserWarning)
        return NeighborLoader(data, fan_out, input_nodes=seeds, batch_size=SEEDS)


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


def draws(loader: Any, batches: int) -> float:
    """Median seconds of the sampler alone."""
    seconds = []
    for indices, _ in zip(loader.batch_sampler, range(batches), strict=False):
        inputs = loader.input_data[torch.tensor(indices)]
        begin = time.perf_counter()
        loader.node_sampler.sample_from_nodes(inputs)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)


def whole(loader: Any, batches: int) -> float:
    """Median seconds of a batch with its features."""
    seconds, iterator = [], iter(loader)
    for _ in range(min(batches, len(loader))):
        begin = time.perf_counter()
        next(iterator)
        seconds.append(time.perf_counter() - begin)
    return quantile(seconds, 0.5)


def measured(
    name: str, data: Data, fan_out: list[int], seeds: Tensor, options: argparse.Namespace
) -> dict[str, Any]:
    """One row of results, printed."""
    take = draws if name != "batch" else whole
    names = [*([] if (other := peer()) is None else [other]), "onehop"]

    def turn(ours: bool) -> float:
        with onehop.patch(sampler=ours):
            return take(loader_of(data, fan_out, seeds), options.batches)

    ways: dict[str, Callable[[], float]] = {way: partial(turn, way == "onehop") for way in names}
    for way in names:
        with onehop.patch(sampler=way == "onehop"):
            batch = next(iter(loader_of(data, fan_out, seeds)))
            check(data, batch, fan_out)
    times: dict[str, Times] = in_turns(ways, options.rounds)
    line = "   ".join(f"{way} {value.median_s * 1e3:8.2f} ms" for way, value in times.items())
    row: dict[str, Any] = {
        "case": name, "fan_out": fan_out, "nodes": batch.num_nodes, "edges": batch.num_edges,
        "seconds": {way: value.to_dict() for way, value in times.items()},
    }  # fmt: skip
    if other is None:
        line += "   (PyG has nothing to draw with here)"
    else:
        ratio = Ratio.of(times[other], times["onehop"])
        line += f"   {ratio.median:5.2f}x ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})"
        row |= {"speedup": ratio.median, "speedup_quartiles": [ratio.lower_quartile, ratio.upper_quartile]}
    print(f"{name:15} {batch.num_nodes} nodes, {batch.num_edges} edges   {line}", flush=True)
    return row


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


def epochs(training: Training, rounds: int) -> dict[str, Any]:
    """Whole epochs and their steps, printed."""
    difference, other = check_gradients(training), peer()
    ways: dict[str, Way] = {} if other is None else {f"PyG with {other}": nullcontext}
    ways["onehop"] = partial(onehop.patch, sampler=True)
    found: dict[str, list[Epoch]] = {name: [] for name in ways}

    def turn(name: str) -> float:
        found[name].append(training.epoch(ways[name]))
        return found[name][-1].seconds

    whole = in_turns({name: partial(turn, name) for name in ways}, rounds)
    steps = {name: Times(tuple(each.steps for each in turns)) for name, turns in found.items()}
    for name in ways:
        share = quantile([1 - each.steps / each.seconds for each in found[name]], 0.5)
        print(
            f"epoch           {name:22} {whole[name].median_s:8.3f} s, steps {steps[name].median_s:8.3f} s, "
            f"making batches {100 * share:.0f} %",
            flush=True,
        )
    row: dict[str, Any] = {
        "case": "epoch", "fan_out": training.fan_out, "seeds": training.seeds.numel(), "hidden": HIDDEN,
        "difference": difference,
        "seconds": {name: times.to_dict() for name, times in whole.items()},
        "step_seconds": {name: times.to_dict() for name, times in steps.items()},
    }  # fmt: skip
    if other is None:
        return row
    slow = f"PyG with {other}"
    gain, of_steps = (Ratio.of(times[slow], times["onehop"]) for times in (whole, steps))
    # Each epoch's gain over the gain of the steps in it.
    kept = Ratio.of(
        Times(tuple(a / b for a, b in zip(whole[slow].seconds, whole["onehop"].seconds, strict=True))),
        Times(tuple(a / b for a, b in zip(steps[slow].seconds, steps["onehop"].seconds, strict=True))),
    )
    print(f"epoch           {gain.median:5.2f}x, its steps {of_steps.median:5.2f}x")
    return row | {
        "speedup": gain.median,
        "speedup_quartiles": [gain.lower_quartile, gain.upper_quartile],
        "step_speedup": of_steps.median,
        "step_speedup_quartiles": [of_steps.lower_quartile, of_steps.upper_quartile],
        "epoch_over_step": kept.median,
        "epoch_over_step_quartiles": [kept.lower_quartile, kept.upper_quartile],
    }


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was to be reached beside what was, printed; nothing where onehop stands alone."""
    by_case = {row["case"]: row for row in rows}
    asked = (
        ("draws over PyG's sampler", DRAW_TARGET, by_case["draw"].get("speedup")),
        (
            "gain of the epoch over the gain of its steps",
            EPOCH_TARGET,
            by_case["epoch"].get("epoch_over_step"),
        ),
    )
    reached = []
    for what, target, found in asked:
        if found is None:
            print(f"target: {what}: at least {target:g}; not measured, PyG has nothing to draw with here")
            continue
        print(f"target: {what}: {found:.2f}, at least {target:g}: {'' if found >= target else 'not '}reached")
        reached.append({"what": what, "target": target, "found": found, "reached": found >= target})
    return reached


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--graph", default="twin:arxiv")
    parser.add_argument("--fan-out", type=command.integers, default="15,10")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--epoch-batches", type=int, help="batches of an epoch (all training nodes)")
    options = command.read(parser)
    torch.manual_seed(0)
    print(machine_line())
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    seeds = torch.randperm(task.x.size(0))[: SEEDS * options.batches]
    rows = [
        measured(name, data, fan_out, seeds, options)
        for name, fan_out in (
            ("draw", options.fan_out),
            ("batch", options.fan_out),
            ("all neighbours", [-1] * len(options.fan_out)),
        )
    ]
    train = task.train_mask.nonzero().view(-1)
    if options.epoch_batches is not None:
        train = train[: SEEDS * options.epoch_batches]
    rows.append(epochs(Training(data, task.num_classes, options.fan_out, train), options.rounds))
    content = {"graph": options.graph, "results": rows, "targets": targets(rows)}
    command.write(options, "bench sampler", content)


if __name__ == "__main__":
    main()
