"""Epochs of whole models: PyG and the patch, each eager and compiled by ``torch.compile``.

    python benchmarks/compile/bench_compile.py [--models gcn,sage,gat] [--graphs arxiv,cora] [--hidden 256]
                                               [--rounds 5] [--threads N] [--json FILE]

The models are the Open Graph Benchmark's for arxiv: three layers with BatchNorm, ReLU and dropout between
them; GAT has 4 heads and attention dropout. The four ways take turns, and each turn begins with an epoch that
is not timed. Before anything is timed, losses without dropout are compared. PyG's own compiled attention
breaks its program where the number of edges depends on the data, so only the patched programs are whole.
"""

import argparse
import contextlib
import copy
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as gnn

import onehop
from onehop.bench import graphs
from onehop.bench.stamp import machine_line
from onehop.bench.timing import measure_once

WAYS = ("pyg", "pyg, compiled", "patched", "patched, compiled")
CLASSES = {"arxiv": (128, 40), "cora": (1433, 7)}
HEADS = 4
DROPOUT = 0.5
TOLERANCE = 1e-3


class Model(torch.nn.Module):
    """Three layers, with BatchNorm, ReLU and dropout between them."""

    def __init__(self, name: str, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        widths = (features, hidden, hidden, classes)
        self.layers = torch.nn.ModuleList(
            layer(name, *ends, last=at == 2) for at, ends in enumerate(itertools.pairwise(widths))
        )
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(hidden) for _ in widths[1:-1])
        self.dropout = DROPOUT

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[N, classes]: log-probabilities."""
        for conv, norm in zip(self.layers, self.norms, strict=False):
            x = F.dropout(norm(conv(x, edge_index)).relu(), self.dropout, self.training)
        return self.layers[-1](x, edge_index).log_softmax(-1)


def layer(name: str, before: int, after: int, last: bool) -> torch.nn.Module:
    """A layer of the model of that name."""
    if name == "gcn":
        return gnn.GCNConv(before, after)
    if name == "sage":
        return gnn.SAGEConv(before, after)
    heads = 1 if last else HEADS
    return gnn.GATConv(before, after // heads, heads=heads, dropout=0.0 if last else 0.1)


class Trained:
    """One way to train a model."""

    def __init__(self, way: str, model: Model, x: Tensor, edge_index: Tensor, labels: Tensor) -> None:
        self.way, self.model = way, copy.deepcopy(model)
        self.run = torch.compile(self.model) if "compiled" in way else self.model
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.005)
        self.data = x, edge_index, labels

    def in_place(self) -> contextlib.AbstractContextManager[Any]:
        """The patch, where this way has it."""
        return onehop.patch() if self.way.startswith("patched") else contextlib.nullcontext()

    def epoch(self) -> float:
        """The loss of one epoch."""
        x, edge_index, labels = self.data
        self.optimiser.zero_grad()
        loss = F.nll_loss(self.run(x, edge_index), labels)
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


def check(ways: list[Trained]) -> None:
    """Raises unless all ways agree on the loss of a model without dropout."""
    losses = {}
    for each in ways:
        model = copy.deepcopy(each.model).eval()
        run = torch.compile(model) if "compiled" in each.way else model
        x, edge_index, labels = each.data
        with each.in_place():
            losses[each.way] = float(F.nll_loss(run(x, edge_index), labels).detach())
    expected = losses[WAYS[0]]
    for way, loss in losses.items():
        if abs(loss - expected) > TOLERANCE * abs(expected):
            raise SystemExit(f"{way}: a loss of {loss}, where PyG has {expected}")


def measure(name: str, graph: str, hidden: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of an epoch in every turn, by way."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    workload = graphs.workload(graph)
    features, classes = CLASSES[graph]
    x = torch.randn(workload.num_nodes, features)
    labels = torch.randint(classes, (workload.num_nodes,))
    model = Model(name, features, hidden, classes)
    ways = [Trained(way, model, x, workload.edge_index, labels) for way in WAYS]
    check(ways)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for each in ways:
            with each.in_place():
                # Compiles, and has the memory that leaving the patch gave back.
                for _ in range(3):
                    each.epoch()
                times[each.way].append(measure_once(each.epoch))
    return times


def names(text: str) -> list[str]:
    """The names of a list, separated by commas."""
    return text.split(",")


def main() -> None:
    """Prints a table."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--models", type=names, default=["gcn", "sage", "gat"])
    parser.add_argument("--graphs", type=names, default=["arxiv", "cora"])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(machine_line())
    rows = []
    for graph in given.graphs:
        for name in given.models:
            times = measure(name, graph, given.hidden, given.rounds)
            medians = {way: statistics.median(each) for way, each in times.items()}
            ratio = medians["patched"] / medians["patched, compiled"]
            line = "  ".join(f"{way} {1e3 * seconds:.1f} ms" for way, seconds in medians.items())
            print(f"{graph} {name}: {line}; compiling the patched model: {ratio:.2f}x", flush=True)
            rows.append({"graph": graph, "model": name, "hidden": given.hidden, "seconds": times})
    if given.json is not None:
        given.json.write_text(json.dumps({"threads": given.threads, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
