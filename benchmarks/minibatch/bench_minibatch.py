"""Training on mini-batches, forward and backward: plain PyG beside the same with ``onehop.patch()``.

    python benchmarks/minibatch/bench_minibatch.py neighbours [--graph twin:arxiv] [--batches 20]
    python benchmarks/minibatch/bench_minibatch.py molecules [--widths 16,64]

Both take ``--rounds N``, ``--threads N`` and ``--json FILE``.

``neighbours``: GraphSAGE of two layers on batches of 1,024 nodes, each with 15 neighbours and 10 neighbours
of those, as PyG's ``NeighborLoader`` draws them (which needs ``torch_sparse`` or ``pyg-lib``). ``molecules``:
one layer on a batch of 1,024 graphs of 30 nodes, its edges a random tree and three rings, each in both
directions, as molecules come.

Every pass gets tensors that were never seen before, so that each builds its graph anew. The ways take turns;
the first batch of a turn is not counted. Gradients are compared before any time is taken. Beside them stands
what building one batch's graph costs, and one aggregation over it.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
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
from onehop.bench.timing import Ratio, Times, in_turns, measure_once, quantile

with warnings.catch_warnings():
    # PyG calls torch.jit.script while it is imported, which newer releases of torch deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import nn
    from torch_geometric.data import Batch, Data
    from torch_geometric.loader import NeighborLoader

SEEDS, FAN_OUT, HIDDEN = 1024, (15, 10), 256
MOLECULES, ATOMS, RINGS = 1024, 30, 3
# Relative to the largest entry: float32, added up in another order.
TOLERANCE = 1e-3
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {"pyg": nullcontext, "onehop": onehop.patch}

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Step:
    """One batch to train on: what the loss is computed from."""

    x: Tensor
    edge_index: Tensor
    loss: Loss

    def fresh(self) -> "Step":
        """The same in tensors that nobody has seen."""
        return Step(self.x.clone(), self.edge_index.clone(), self.loss)


def train(model: torch.nn.Module, step: Step) -> None:
    """Forward and backward."""
    model.zero_grad()
    step.loss(step.x, step.edge_index).backward()


def gradients(model: torch.nn.Module, step: Step) -> list[Tensor]:
    """Of every parameter."""
    train(model, step.fresh())
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def check(model: torch.nn.Module, step: Step) -> float:
    """The largest difference between the gradients of the two ways, relative to the largest gradient."""
    expected = gradients(model, step)
    with onehop.patch():
        got = gradients(model, step)
    scale = max(float(g.abs().max()) for g in expected)
    worst = max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True)) / scale
    if not worst <= TOLERANCE:
        raise SystemExit(f"gradients differ by {worst:.1e} of the largest; nothing was measured.")
    return worst


def race(model: torch.nn.Module, steps: Sequence[Step], rounds: int) -> dict[str, Times]:
    """Seconds that a batch takes, one figure a round and way."""

    def turn(way: Callable[[], AbstractContextManager[Any]]) -> float:
        with way():
            train(model, steps[0].fresh())
            fresh = (step.fresh() for step in steps)
            return quantile([measure_once(partial(train, model, step)) for step in fresh], 0.5)

    return in_turns({name: partial(turn, way) for name, way in WAYS.items()}, rounds)


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


def measured(name: str, model: torch.nn.Module, steps: Sequence[Step], rounds: int) -> dict[str, Any]:
    """One row of results, printed."""
    difference = check(model, steps[0])
    times = race(model, steps, rounds)
    ratio = Ratio.of(times["pyg"], times["onehop"])
    with onehop.patch():
        costs = building(steps[0])
    milliseconds = {key: value.median_s * 1e3 for key, value in times.items()}
    print(
        f"{name:12} PyG {milliseconds['pyg']:8.2f} ms   onehop {milliseconds['onehop']:8.2f} ms   "
        f"{ratio.median:5.2f}x ({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})   graph "
        f"{costs['build_s'] * 1e3:.2f} ms, its transpose {costs['transpose_s'] * 1e3:.2f} ms, one sum "
        f"{costs['sum_s'] * 1e3:.2f} ms",
        flush=True,
    )
    return {
        "case": name,
        "nodes": steps[0].x.size(0), "edges": steps[0].edge_index.size(1), "width": steps[0].x.size(1),
        "seconds": {way: value.to_dict() for way, value in times.items()},
        "speedup": ratio.median, "speedup_quartiles": [ratio.lower_quartile, ratio.upper_quartile],
        "difference": difference, **costs,
    }  # fmt: skip


def neighbours(options: argparse.Namespace) -> list[dict[str, Any]]:
    """GraphSAGE on sampled neighbourhoods."""
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    model = SAGE(task.x.size(1), HIDDEN, task.num_classes)
    with warnings.catch_warnings():
        # PyG would rather have pyg-lib draw the neighbours; torch_sparse draws the same ones.
        warnings.simplefilter("ignore", UserWarning)
        loader = NeighborLoader(
            data, list(FAN_OUT), input_nodes=task.train_mask, batch_size=SEEDS, shuffle=True
        )
    begin, batches = time.perf_counter(), []
    for batch in loader:
        batches.append(batch)
        if len(batches) == options.batches:
            break
    sampling = (time.perf_counter() - begin) / len(batches)

    def of(batch: Any) -> Step:
        seeds, labels = batch.batch_size, batch.y[: batch.batch_size]

        def loss(x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.nn.functional.cross_entropy(model(x, edge_index)[:seeds], labels)

        return Step(batch.x, batch.edge_index, loss)

    row = measured("GraphSAGE", model, [of(batch) for batch in batches], options.rounds)
    print(f"an epoch has {len(loader)} batches; drawing one takes {sampling * 1e3:.1f} ms beside either way")
    return [row | {"graph": options.graph, "batches_in_epoch": len(loader), "sampling_s": sampling}]


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


def molecules(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One layer on many small graphs."""
    generator = torch.Generator().manual_seed(0)
    batch = Batch.from_data_list([molecule(generator) for _ in range(MOLECULES)])
    rows = []
    for width in options.widths:
        x = torch.randn(batch.num_nodes, width, generator=generator)
        for name, layer in layers(width).items():
            rows.append(measured(f"{name}, {width}", layer, [step_of(layer, x, batch)] * 10, options.rounds))
    return rows


def step_of(layer: torch.nn.Module, x: Tensor, batch: Any) -> Step:
    """A layer inside a model: its input needs a gradient too."""

    def loss(x: Tensor, edge_index: Tensor) -> Tensor:
        return layer(x.requires_grad_(), edge_index).square().mean()  # type: ignore[no-any-return]

    return Step(x, batch.edge_index, loss)


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("what", choices=("neighbours", "molecules"))
    parser.add_argument("--graph", default="twin:arxiv")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--widths", type=command.integers, default="16,64")
    options = command.read(parser)
    torch.manual_seed(0)
    print(machine_line())
    rows = {"neighbours": neighbours, "molecules": molecules}[options.what](options)
    command.write(options, f"bench minibatch {options.what}", {"results": rows})


if __name__ == "__main__":
    main()
