"""Training epochs of a GCN: DGL, DGL with ``patch(only="dgl")``, and PyG with ``patch(only="pyg")``.

    python benchmarks/dgl/bench_dgl_models.py [--graph twin:reddit-mini] [--hidden 32,128] [--rounds N]
                                              [--threads N] [--json FILE]

Two layers, full batch, forward, backward and Adam, on a graph whose edges go both ways, where PyG's
normalisation and DGL's are the same. All begin with the same parameters, and the losses of the first epochs
are compared before any time is taken. The ways take turns in one process; the first epochs of a turn are not
counted. DGL must be installed (see ``bench_dgl.py``).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from bench_dgl import graph_of

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.peers.dgl import DglPeer
from onehop.bench.stamp import machine_line
from onehop.bench.tasks import LearningTask
from onehop.bench.timing import Ratio, in_turns, timed
from onehop.bench.training import LEARNING_RATE, Training

CHECKED_EPOCHS, UNTIMED_EPOCHS, EPOCHS = 3, 3, 5
TOLERANCE = 1e-4
Epoch = Callable[[], float]


def dgl_epoch(task: LearningTask, graph: Any, hidden: int, like: torch.nn.Module) -> Epoch:
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


def ways(
    task: LearningTask, graph: Any, hidden: int
) -> dict[str, tuple[Callable[[], AbstractContextManager[Any]], Epoch]]:
    """What is compared: a context to be in, and an epoch."""
    training = Training("gcn", task, hidden)
    return {
        "dgl": (nullcontext, dgl_epoch(task, graph, hidden, training.model)),
        "dgl-onehop": (
            lambda: onehop.patch(only="dgl"), dgl_epoch(task, graph, hidden, training.model),
        ),
        "pyg-onehop": (lambda: onehop.patch(only="pyg"), training.epoch),
    }  # fmt: skip


def measured(name: str, task: LearningTask, graph: Any, hidden: int, rounds: int) -> dict[str, Any]:
    """One row of results, printed."""
    compared = ways(task, graph, hidden)
    losses: dict[str, list[float]] = {}
    for way, (context, epoch) in compared.items():
        with context():
            losses[way] = [epoch() for _ in range(CHECKED_EPOCHS)]
    worst = max(abs(a - b) for own in losses.values() for a, b in zip(own, losses["dgl"], strict=True))
    if not worst <= TOLERANCE:
        raise SystemExit(f"losses differ by {worst:.1e}; nothing was measured: {losses}")

    def turn(context: Callable[[], AbstractContextManager[Any]], epoch: Epoch) -> float:
        with context():
            for _ in range(UNTIMED_EPOCHS - 1):
                epoch()
            return timed(epoch, EPOCHS).median_s

    times = in_turns({way: partial(turn, *each) for way, each in compared.items()}, rounds)
    ratios = {way: Ratio.of(times["dgl"], times[way]) for way in compared if way != "dgl"}
    told = "   ".join(
        f"{way} {times[way].median_s * 1e3:7.1f} ms ({ratio.median:.2f}x)" for way, ratio in ratios.items()
    )
    print(f"{name} hidden {hidden:4}   dgl {times['dgl'].median_s * 1e3:7.1f} ms   {told}", flush=True)
    return {
        "graph": name, "model": "gcn", "hidden": hidden, "loss_difference": worst,
        "seconds": {way: value.to_dict() for way, value in times.items()},
        "over_dgl": {way: ratio.median for way, ratio in ratios.items()},
    }  # fmt: skip


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--graph", default="twin:reddit-mini")
    parser.add_argument("--hidden", type=command.integers, default="32,128")
    options = command.read(parser)
    if reason := DglPeer().available():
        parser.error(reason)
    print(machine_line())
    task = LearningTask.of(datasets.load(options.graph))
    graph = graph_of(options.graph)
    rows = [measured(options.graph, task, graph, hidden, options.rounds) for hidden in options.hidden]
    command.write(options, "bench dgl models", {"results": rows})


if __name__ == "__main__":
    main()
