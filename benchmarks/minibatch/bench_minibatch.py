"""Training on mini-batches, forward and backward: plain PyG beside the same with ``onehop.patch()``.

    python -m benchmarks.minibatch.bench_minibatch neighbours [--graph twin:arxiv] [--batches 20]
    python -m benchmarks.minibatch.bench_minibatch molecules [--widths 16,64]

Both take ``--rounds N``, ``--threads N`` and ``--json FILE``.

``neighbours``: GraphSAGE of two layers on batches of 1,024 nodes, each with 15 neighbours and 10 neighbours
of those, as PyG's ``NeighborLoader`` draws them (which needs ``torch_sparse`` or ``pyg-lib``). ``molecules``:
one layer on a batch of 1,024 graphs of 30 nodes, its edges a random tree and three rings, each in both
directions, as molecules come.

Every pass gets tensors that were never seen before, so that each builds its graph anew. The ways take turns;
the first batch of a turn is not counted. Gradients are compared before any time is taken. Beside them stands
what building one batch's graph costs, and one aggregation over it.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Options, Row, run_part
from benchmarks.minibatch.loaders import Batch, Data, loader_of, nn
from onehop import datasets
from onehop.bench.plain_models import SAGE
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Times, measure_once, quantile

FAN_OUT, HIDDEN = (15, 10), 256
MOLECULES, ATOMS, RINGS = 1024, 30, 3

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Step:
    """One batch to train on: what the loss is computed from."""

    x: Tensor
    edge_index: Tensor
    loss: Loss

    def fresh(self) -> "Step":
        """The same in new tensors."""
        return Step(self.x.clone(), self.edge_index.clone(), self.loss)


def train(model: torch.nn.Module, step: Step) -> None:
    """Forward and backward."""
    model.zero_grad()
    step.loss(step.x, step.edge_index).backward()


def gradients(model: torch.nn.Module, step: Step) -> list[Tensor]:
    """Of every parameter."""
    train(model, step.fresh())
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def race(model: torch.nn.Module, steps: Sequence[Step], rounds: int) -> dict[str, Times]:
    """Seconds that a batch takes, one figure a round and way."""

    def turn() -> float:
        train(model, steps[0].fresh())
        fresh = (step.fresh() for step in steps)
        return quantile([measure_once(partial(train, model, step)) for step in fresh], 0.5)

    return harness.in_ways(harness.PYG_AND_ONEHOP, turn, rounds)


def building(step: Step, repeats: int = 15) -> dict[str, float]:
    """Median seconds of building a batch's graph, of its transpose, and of one sum over it."""
    samples: dict[str, list[float]] = {"build_s": [], "transpose_s": [], "sum_s": []}
    for _ in range(repeats):
        edge_index = step.edge_index.clone()
        begin = time.perf_counter()
        graph = onehop.Graph.from_edge_index(edge_index, num_nodes=step.x.size(0))
        built = time.perf_counter()
        _ = graph.transposed_csr
        turned = time.perf_counter()
        onehop.aggregate(graph, step.x)
        samples["sum_s"].append(time.perf_counter() - turned)
        samples["transpose_s"].append(turned - built)
        samples["build_s"].append(built - begin)
    return {name: quantile(values, 0.5) for name, values in samples.items()}


def measured(name: str, model: torch.nn.Module, steps: Sequence[Step], rounds: int) -> Row:
    """One row of results."""
    expected = gradients(model, steps[0])
    with onehop.patch():
        found = gradients(model, steps[0])
    scale = max(float(each.abs().max()) for each in expected)
    difference = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) / scale
    harness.must_agree(difference, harness.TOLERANCE, f"{name}: the gradient")
    times = race(model, steps, rounds)
    with onehop.patch():
        costs = building(steps[0])
    return {
        "case": name,
        "nodes": steps[0].x.size(0), "edges": steps[0].edge_index.size(1), "width": steps[0].x.size(1),
        **harness.compared(times, "pyg"),
        "difference": difference, **costs,
    }  # fmt: skip


def neighbours(options: Options) -> Iterator[Row]:
    """GraphSAGE on sampled neighbourhoods."""
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    model = SAGE(task.x.size(1), HIDDEN, task.num_classes)
    loader = loader_of(data, list(FAN_OUT), task.train_mask, shuffle=True)
    begin = time.perf_counter()
    batches = list(itertools.islice(loader, options.batches))
    sampling = (time.perf_counter() - begin) / len(batches)

    def of(batch: Any) -> Step:
        seeds, labels = batch.batch_size, batch.y[: batch.batch_size]

        def loss(x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(model(x, edge_index)[:seeds], labels)

        return Step(batch.x, batch.edge_index, loss)

    row = measured("GraphSAGE", model, [of(batch) for batch in batches], options.rounds)
    yield row | {"graph": options.graph, "batches_in_epoch": len(loader), "sampling_s": sampling}


def molecule(generator: torch.Generator) -> Data:
    """A random tree and some rings, each edge in both directions, in pairs."""
    child = torch.arange(1, ATOMS)
    # Branches are short: each atom hangs on one of the three before it.
    parent = (child - 1 - torch.randint(0, 3, (ATOMS - 1,), generator=generator)).clamp(min=0)
    start = torch.randint(0, ATOMS - 5, (RINGS,), generator=generator)
    bonds = torch.cat([torch.stack([parent, child]), torch.stack([start, start + 5])], 1)
    both = torch.stack([bonds, bonds.flip(0)], 2).flatten(1)
    return Data(edge_index=both, num_nodes=ATOMS)


def layers(width: int) -> dict[str, torch.nn.Module]:
    """The layers that are measured on molecules, of one width in and out."""
    return {
        "GCN": nn.GCNConv(width, width),
        "GIN": nn.GINConv(torch.nn.Linear(width, width)),
        "SAGE": nn.SAGEConv(width, width),
        "GAT": nn.GATConv(width, width // 4, heads=4),
    }


def molecules(options: Options) -> Iterator[Row]:
    """One layer on many small graphs."""
    generator = torch.Generator().manual_seed(0)
    batch = Batch.from_data_list([molecule(generator) for _ in range(MOLECULES)])
    for width in options.widths:
        x = torch.randn(batch.num_nodes, width, generator=generator)
        for name, layer in layers(width).items():
            yield measured(f"{name}, {width}", layer, [step_of(layer, x, batch)] * 10, options.rounds)


def step_of(layer: torch.nn.Module, x: Tensor, batch: Any) -> Step:
    """A layer inside a model: its input needs a gradient too."""

    def loss(x: Tensor, edge_index: Tensor) -> Tensor:
        return layer(x.requires_grad_(), edge_index).square().mean()  # type: ignore[no-any-return]

    return Step(x, batch.edge_index, loss)


COLUMNS = (
    "case; nodes; edges; width; PyG, ms | seconds/pyg/median_s | ms; "
    "onehop, ms | seconds/onehop/median_s | ms; over PyG | speedup | gain speedup_quartiles; "
    "graph, ms | build_s | ms; transpose, ms | transpose_s | ms; one sum, ms | sum_s | ms; "
    "drawing, ms | sampling_s | ms; batches an epoch | batches_in_epoch"
)
PARTS = {
    "neighbours": Benchmark(
        "bench minibatch neighbours", neighbours, COLUMNS,
        {"graph": "twin:arxiv", "batches": 20}, rounds=5,
    ),
    "molecules": Benchmark(
        "bench minibatch molecules", molecules, COLUMNS, {"widths": (16, 64)}, rounds=5
    ),
}  # fmt: skip

if __name__ == "__main__":
    torch.manual_seed(0)
    run_part(__doc__, PARTS)
