"""LABOR beside uniform sampling: nodes and edges a batch, and the time to draw it, to make it, and to train.

    python -m benchmarks.minibatch.bench_labor [--graph twin:products] [--fan-out 10,10] [--batches 20]

Both draw for the same seeds, in turns. ``draw`` is the sampler alone; ``batch`` is what PyG's
``NeighborLoader`` hands out, with features; ``epoch`` trains GraphSAGE under the patch on all of the batches.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Options, Row
from benchmarks.minibatch.loaders import SEEDS, Data, NeighborLoader, draws, whole
from onehop import datasets
from onehop.bench.plain_models import SAGE
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import in_turns

METHODS = ("uniform", "labor")


def epoch(classes: int, hidden: int, loader: Any) -> float:
    """Seconds of training on every batch once."""
    torch.manual_seed(0)
    model = SAGE(loader.data.num_features, hidden, classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    with onehop.patch():
        for each in loader:
            optimizer.zero_grad()
            out = model(each.x, each.edge_index)[: each.batch_size]
            torch.nn.functional.cross_entropy(out, each.y[: each.batch_size]).backward()
            optimizer.step()
    return time.perf_counter() - begin


def sizes(loader: Any) -> tuple[float, float]:
    """Mean numbers of nodes and of edges of a batch."""
    found = [(each.num_nodes, each.num_edges) for each in loader]
    nodes, edges = (sum(of) / len(found) for of in zip(*found, strict=True))
    return nodes, edges


def rows(options: Options) -> Iterator[Row]:
    """Draws, batches, and epochs, each with the sizes of batches."""
    torch.manual_seed(0)
    task = LearningTask.of(datasets.load(options.graph))
    data = Data(x=task.x, edge_index=task.edge_index, y=task.y)
    graph = onehop.Graph.from_edge_index(task.edge_index, num_nodes=task.x.size(0))
    seeds = torch.randperm(task.x.size(0))[: SEEDS * options.batches]
    loaders = {}
    for method in METHODS:
        sampler = onehop.NeighborSampler(graph, options.fan_out, method=method)
        loaders[method] = NeighborLoader(
            data, [], neighbor_sampler=sampler, input_nodes=seeds, batch_size=SEEDS
        )
    found = {method: sizes(loader) for method, loader in loaders.items()}
    (nodes, edges), (fewer, same) = (found[method] for method in METHODS)
    takes: dict[str, Callable[[Any], float]] = {
        "draw": partial(draws, batches=options.batches),
        "batch": partial(whole, batches=options.batches),
        "epoch": partial(epoch, task.num_classes, options.hidden),
    }
    for name, take in takes.items():
        times = in_turns(
            {method: partial(take, loader) for method, loader in loaders.items()}, options.rounds
        )
        yield {
            "case": name, "fan_out": options.fan_out, "nodes": nodes, "edges": edges,
            "labor_nodes": fewer, "labor_edges": same, "share": fewer / nodes,
            **harness.compared(times, "uniform", "labor"),
        }  # fmt: skip


BENCHMARK = Benchmark(
    "bench labor",
    rows,
    "case; fan-out | fan_out | list; nodes | nodes | {:.0f}; LABOR's | labor_nodes | {:.0f}; "
    "share | share | {:.3f}; edges | edges | {:.0f}; LABOR's | labor_edges | {:.0f}; "
    "uniform, ms | seconds/uniform/median_s | ms; LABOR, ms | seconds/labor/median_s | ms; "
    "gain | speedup | gain speedup_quartiles",
    {"graph": "twin:products", "fan_out": (10, 10), "batches": 20, "hidden": 256},
    rounds=5,
    kept=("graph",),
)

if __name__ == "__main__":
    BENCHMARK.main()
