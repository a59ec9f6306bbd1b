"""Layers with messages of their own, forward and backward: plain PyG, in blocks, and compiled.

    python benchmarks/layers/bench_messages.py [--layers gine,resgated] [--graphs arxiv] [--rounds 3]
                                               [--threads N] [--json FILE]

Each layer has a process of its own, in which the three ways take turns after their results and gradients
have been compared. Peak memory is what a forward and backward pass adds to a process of its own, after its
data and the layer have been made. Beside each layer stands its floor (``message_floors.py``).
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from message_floors import beside_floor, message_floor, message_works
from torch import Tensor

import onehop
from onehop import thresholds
from onehop.bench import command, graphs
from onehop.bench.floors import Roofs
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.stamp import machine_line
from onehop.bench.timing import measure_once

WAYS = ("pyg", "blocks", "compiled")
WIDTH, NARROW = 64, 16
LAYERS = (
    "gine",
    "gine-narrow",
    "resgated",
    "cg",
    "cg-narrow",
    "film",
    "edge-sum",
    "edge-max",
    "feast",
    "pna",
    "gen",
    "point-transformer",
)
# Of norms: sums over hubs of float32 differ in their last digits with their order, and where the argument of
# a ReLU is zero but for rounding, a single entry of a gradient differs as a whole.
TOLERANCE = 1e-3
# A gradient this much smaller than the largest of all is zero but for rounding: that of what a softmax adds
# to every edge of a row is.
ZERO = 1e-6


class OnPoints(torch.nn.Module):
    """A layer on points, whose positions are the first three features of each node."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The layer's result, [N, F]."""
        found: Tensor = self.layer(x, x[:, :3], edge_index)
        return found


def layer_of(name: str) -> tuple[torch.nn.Module, int]:
    """The layer, and the width of its edge features (0: none)."""
    from torch.nn import Linear, ReLU, Sequential
    from torch_geometric import nn

    degrees = torch.ones(30, dtype=torch.int64)
    aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
    perceptron = Sequential(Linear(2 * WIDTH, WIDTH), ReLU(), Linear(WIDTH, WIDTH))
    layers: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {
        "gine": (lambda: nn.GINEConv(Linear(WIDTH, WIDTH)), WIDTH),
        "gine-narrow": (lambda: nn.GINEConv(Linear(WIDTH, WIDTH), edge_dim=NARROW), NARROW),
        "resgated": (lambda: nn.ResGatedGraphConv(WIDTH, WIDTH), 0),
        "cg": (lambda: nn.CGConv(WIDTH), 0),
        "cg-narrow": (lambda: nn.CGConv(WIDTH, dim=NARROW), NARROW),
        "film": (lambda: nn.FiLMConv(WIDTH, WIDTH), 0),
        "pna": (lambda: nn.PNAConv(WIDTH, WIDTH, aggregators, scalers, degrees), 0),
        "gen": (lambda: nn.GENConv(WIDTH, WIDTH), 0),
        "edge-sum": (lambda: nn.EdgeConv(perceptron, aggr="sum"), 0),
        "edge-max": (lambda: nn.EdgeConv(perceptron), 0),
        "feast": (lambda: nn.FeaStConv(WIDTH, WIDTH, heads=4), 0),
        "point-transformer": (lambda: OnPoints(nn.PointTransformerConv(WIDTH, WIDTH)), 0),
    }
    make, edge_width = layers[name]
    return make(), edge_width


def way_of(way: str, patch: onehop.Patch) -> contextlib.AbstractContextManager[Any]:
    """The block in which a layer runs this way; graphs are kept between blocks."""
    if way == "pyg":
        return patch.paused()
    return thresholds.changed(compiled_edges=1 << 60) if way == "blocks" else contextlib.nullcontext()


def child(order: dict[str, Any]) -> dict[str, Any]:
    """What one process measures: times of all ways, or the peak memory of one."""
    torch.set_num_threads(order["threads"])
    torch.manual_seed(0)
    workload = graphs.workload(order["graph"])
    layer, edge_width = layer_of(order["layer"])
    leaves = [torch.randn(workload.num_nodes, WIDTH).requires_grad_()]
    if edge_width:
        leaves.append(torch.randn(workload.num_edges, edge_width).requires_grad_())
    learned = [*leaves, *layer.parameters()]

    def once() -> list[Tensor]:
        out = layer(leaves[0], workload.edge_index, *leaves[1:])
        found = torch.autograd.grad(out, learned, torch.ones_like(out), allow_unused=True)
        return [out.detach(), *(g for g in found if g is not None)]

    patch = onehop.patch()
    if order["way"] is not None:
        before = resident_bytes()
        with way_of(order["way"], patch):
            once()
            once()
        return {"peak_bytes": peak_bytes() - before}
    with patch.paused():
        expected, worst = once(), 0.0
    least = ZERO * max(float(b.norm()) for b in expected)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(order["rounds"] + 1):
        for way in WAYS:
            with way_of(way, patch):
                if turn == 0:
                    pairs = zip(once(), expected, strict=True)
                    worst = max(worst, *(float((a - b).norm() / b.norm().clamp(least)) for a, b in pairs))
                else:
                    times[way].append(measure_once(once))
    return {"seconds": {way: statistics.median(of_way) for way, of_way in times.items()}, "difference": worst}


def run(order: dict[str, Any]) -> dict[str, Any]:
    """What the process of one measurement says.

    Raises:
        SystemExit: It failed.
    """
    program = [sys.executable, __file__, "--child", json.dumps(order)]
    finished = subprocess.run(program, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(finished.stderr)
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


def measure(layer: str, graph: str, rounds: int, threads: int) -> dict[str, Any]:
    """All ways of one layer on one graph."""
    order = {"layer": layer, "graph": graph, "rounds": rounds, "threads": threads, "way": None}
    row = {"layer": layer, "graph": graph, **run(order)}
    row["wrong"] = not row["difference"] <= TOLERANCE
    row["peak_bytes"] = {way: run({**order, "way": way})["peak_bytes"] for way in WAYS}
    return row


def describe(row: dict[str, Any]) -> str:
    """A line."""
    seconds, peaks = row["seconds"], row["peak_bytes"]
    parts = [
        f"{way} {seconds[way] * 1e3:.0f} ms ({seconds['pyg'] / seconds[way]:.2f}x PyG), "
        f"{peaks[way] / 1e6:.0f} MB (1/{peaks['pyg'] / peaks[way]:.1f})"
        for way in WAYS
    ]
    wrong = " WRONG" if row["wrong"] else ""
    parts += [beside_floor(seconds["compiled"], row["floor_s"]), f"difference {row['difference']:.1e}{wrong}"]
    return f"{row['graph']} {row['layer']}: {'; '.join(parts)}"


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=3, threads=True)
    parser.add_argument("--layers", type=command.names, default=",".join(LAYERS))
    parser.add_argument("--graphs", type=command.names, default="arxiv")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    print(machine_line())
    rows, works = [], message_works(WIDTH, NARROW)
    for graph in options.graphs:
        workload = graphs.workload(graph)
        roofs = Roofs(workload)
        for layer in options.layers:
            rows.append(measure(layer, graph, options.rounds, options.threads))
            rows[-1]["floor_s"] = message_floor(works[layer], workload, WIDTH, roofs)
            print(describe(rows[-1]), flush=True)
            command.write(options, "bench messages", {"results": rows})


if __name__ == "__main__":
    main()
