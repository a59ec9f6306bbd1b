"""DGL's layers, and a GCN, with and without ``onehop.patch(only="dgl")``.

    python -m benchmarks.dgl.bench_dgl layers [--graphs twin:cora,twin:arxiv] [--layers gat,sage-mean]
                                              [--width 64] [--rounds N] [--threads N] [--json FILE]
    python -m benchmarks.dgl.bench_dgl models [--graph twin:reddit-mini] [--hidden 32,128] [--rounds N]
                                              [--threads N] [--json FILE]

"layers": forward and backward. Graphs have self loops, 32-bit numbers and all of DGL's formats, made
beforehand. Results and gradients are compared before any time is taken.

"models": epochs of a GCN of two layers: DGL, DGL with the patch, and PyG with ``patch(only="pyg")``; full
batch, forward, backward and Adam, on a graph whose edges go both ways, where PyG's normalisation and DGL's
are the same. All begin with the same parameters, and the losses of the first epochs are compared before any
time is taken.

The ways take turns in one process; the first pass or epochs of a turn are not counted. DGL must be installed;
2.1.0 imports beside a newer torch without its sampler, which is not needed.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import TOLERANCE, Benchmark, Option, Options, Row, Way
from onehop import datasets
from onehop.bench.peers import dgl as peer
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, in_turns, measure_once, median_of_turn, timed
from onehop.bench.training import LEARNING_RATE, Training

HEADS = 4
# Passes of a turn; short ones are repeated for about so long.
LEAST_PASSES, TURN_S = 2, 0.5
CHECKED_EPOCHS, UNTIMED_EPOCHS, EPOCHS = 3, 3, 5
LOSS_TOLERANCE = 1e-4
WAYS: dict[str, Way] = {"dgl": nullcontext, "onehop": partial(onehop.patch, only="dgl")}


def layers(width: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """The layers, of one width in and out."""
    from dgl.nn import pytorch as dnn

    head = width // HEADS
    return {
        "graphconv": lambda: dnn.GraphConv(width, width),
        "sage-mean": lambda: dnn.SAGEConv(width, width, "mean"),
        "sage-gcn": lambda: dnn.SAGEConv(width, width, "gcn"),
        "sage-pool": lambda: dnn.SAGEConv(width, width, "pool"),
        "gin": lambda: dnn.GINConv(torch.nn.Linear(width, width), "sum"),
        "gat": lambda: dnn.GATConv(width, head, HEADS),
        "gatv2": lambda: dnn.GATv2Conv(width, head, HEADS),
        "dotgat": lambda: dnn.DotGatConv(width, head, HEADS),
    }


def graph_of(name: str) -> Any:
    """The data set's graph as DGL keeps it."""
    dataset = datasets.load(name, features=False)
    return peer.graph_of(dataset.edge_index, dataset.num_nodes, loops=True)


def once(layer: torch.nn.Module, graph: Any, x: Tensor) -> list[Tensor]:
    """Forward and backward: the result, and every gradient."""
    x.grad = None
    layer.zero_grad()
    out = layer(graph, x)
    out.backward(torch.ones_like(out))
    return [out.detach(), *(leaf.grad for leaf in (x, *layer.parameters()) if leaf.grad is not None)]


def rows(options: Options) -> Iterator[Row]:
    """Measures every layer on every graph."""
    if reason := peer.DglPeer().available():
        raise SystemExit(f"DGL cannot be measured: {reason}")
    torch.manual_seed(0)
    for source in options.graphs:
        graph = graph_of(source)
        for name in options.layers:
            layer = layers(options.width)[name]()
            x = torch.randn(graph.num_nodes(), options.width).requires_grad_()
            call = partial(once, layer, graph, x)
            expected = [each.clone() for each in call()]
            with onehop.patch(only="dgl"):
                difference = harness.apart_by(call(), expected)
            harness.must_agree(difference, TOLERANCE, name)
            times = harness.in_ways(WAYS, partial(median_of_turn, call, TURN_S, LEAST_PASSES), options.rounds)
            explained = onehop.explain(layer, graph, x).layers
            yield {
                "graph": source, "layer": name, "nodes": graph.num_nodes(), "edges": graph.num_edges(),
                "width": options.width, **harness.compared(times, "dgl"),
                "difference": difference,
                "left_to_dgl_without_gradients": [row.reason for row in explained if row.reason is not None],
            }  # fmt: skip


def gcn_of_dgl(task: LearningTask, graph: Any, hidden: int, like: torch.nn.Module) -> Callable[[], float]:
    """An epoch of DGL's own GCN, which begins with the parameters of PyG's."""
    from dgl.nn.pytorch import GraphConv

    layers = torch.nn.ModuleList([GraphConv(task.x.size(1), hidden), GraphConv(hidden, task.num_classes)])
    with torch.no_grad():
        for layer, pyg in zip(layers, (like.first, like.second), strict=True):
            layer.weight.copy_(pyg.lin.weight.t())
            layer.bias.copy_(pyg.bias)
    optimizer = torch.optim.Adam(layers.parameters(), lr=LEARNING_RATE)
    labels = task.y[task.train_mask]

    def epoch() -> float:
        optimizer.zero_grad()
        out = layers[1](graph, layers[0](graph, task.x).relu())
        loss = F.cross_entropy(out[task.train_mask], labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return epoch


def epochs(options: Options) -> Iterator[Row]:
    """Training epochs of a GCN, in three ways."""
    if reason := peer.DglPeer().available():
        raise SystemExit(f"DGL cannot be measured: {reason}")
    task = LearningTask.of(datasets.load(options.graph))
    graph = graph_of(options.graph)
    for hidden in options.hidden:
        training = Training("gcn", task, hidden)
        ways: dict[str, tuple[Way, Callable[[], float]]] = {
            "dgl": (nullcontext, gcn_of_dgl(task, graph, hidden, training.model)),
            "dgl-onehop": (WAYS["onehop"], gcn_of_dgl(task, graph, hidden, training.model)),
            "pyg-onehop": (partial(onehop.patch, only="pyg"), training.epoch),
        }
        losses: dict[str, list[float]] = {}
        for way, (context, epoch) in ways.items():
            with context():
                losses[way] = [epoch() for _ in range(CHECKED_EPOCHS)]
        worst = max(abs(a - b) for own in losses.values() for a, b in zip(own, losses["dgl"], strict=True))
        harness.must_agree(worst, LOSS_TOLERANCE, "a loss")

        def turn(context: Way, epoch: Callable[[], float]) -> float:
            with context():
                measure_once(epoch, UNTIMED_EPOCHS - 1)
                return timed(epoch, EPOCHS).median_s

        times = in_turns({way: partial(turn, *each) for way, each in ways.items()}, options.rounds)
        yield {
            "graph": options.graph, "model": "gcn", "hidden": hidden, "loss_difference": worst,
            "seconds": {way: value.to_dict() for way, value in times.items()},
            "over_dgl": {way: Ratio.of(times["dgl"], times[way]).median for way in ways if way != "dgl"},
        }  # fmt: skip


_NAMES = (
    "graphconv", "sage-mean", "sage-gcn", "sage-pool", "gin", "gat", "gatv2", "dotgat",
)  # fmt: skip
PARTS = {
    "layers": Benchmark(
        "bench dgl",
        rows,
        "graph; layer; DGL, ms | seconds/dgl/median_s | ms; onehop, ms | seconds/onehop/median_s | ms; "
        "over DGL | speedup | gain speedup_quartiles",
        {"graphs": ("twin:cora", "twin:arxiv"), "layers": Option(_NAMES, known=_NAMES), "width": 64},
        rounds=3,
    ),
    "models": Benchmark(
        "bench dgl models",
        epochs,
        "graph; hidden; DGL, ms | seconds/dgl/median_s | ms; "
        "DGL, onehop, ms | seconds/dgl-onehop/median_s | ms; over DGL | over_dgl/dgl-onehop | x; "
        "PyG, onehop, ms | seconds/pyg-onehop/median_s | ms; over DGL | over_dgl/pyg-onehop | x",
        {"graph": "twin:reddit-mini", "hidden": (32, 128)},
        rounds=5,
    ),
}

if __name__ == "__main__":
    harness.run_part(__doc__, PARTS)
