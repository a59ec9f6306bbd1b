"""DGL's layers, forward and backward: plain DGL beside the same with ``onehop.patch(only="dgl")``.

    python benchmarks/dgl/bench_dgl.py [--graphs twin:cora,twin:arxiv] [--layers gat,sage-mean] [--width 64]
                                       [--rounds N] [--threads N] [--json FILE]

Graphs have self loops, 32-bit numbers and all of DGL's formats, made beforehand. Results and gradients are
compared before any time is taken. The ways take turns in one process, and the first pass of a turn is not
counted. DGL must be installed; 2.1.0 imports beside a newer torch without its sampler, which is not needed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop import datasets
from onehop.bench import command
from onehop.bench.peers.dgl import DglPeer
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, Times, in_turns, median_of_turn

HEADS = 4
# Relative to the largest entry: float32, added up in another order.
TOLERANCE = 1e-3
# Passes of a turn; short ones are repeated for about so long.
LEAST_PASSES, TURN_S = 2, 0.5
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "dgl": nullcontext,
    "onehop": lambda: onehop.patch(only="dgl"),
}


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
    import dgl

    dataset = datasets.load(name, features=False)
    graph = dgl.add_self_loop(dgl.graph(tuple(dataset.edge_index), num_nodes=dataset.num_nodes)).int()
    graph.create_formats_()
    return graph


def once(layer: torch.nn.Module, graph: Any, x: Tensor) -> list[Tensor]:
    """Forward and backward: the result, and every gradient."""
    x.grad = None
    layer.zero_grad()
    out = layer(graph, x)
    out.backward(torch.ones_like(out))
    return [out.detach(), *(leaf.grad for leaf in (x, *layer.parameters()) if leaf.grad is not None)]


def check(layer: torch.nn.Module, graph: Any, x: Tensor) -> float:
    """The largest difference of a result or gradient, relative to the largest entry of its kind."""
    expected = [t.clone() for t in once(layer, graph, x)]
    with onehop.patch(only="dgl"):
        found = once(layer, graph, x)
    largest = max(float(t.abs().max()) for t in expected[1:])
    worst = 0.0
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        scale = float(want.abs().max()) if number == 0 else largest
        worst = max(worst, float((got - want).abs().max()) / scale)
    if not worst <= TOLERANCE:
        raise SystemExit(f"{type(layer).__name__} differs by {worst:.1e}; nothing was measured.")
    return worst


def race(layer: torch.nn.Module, graph: Any, x: Tensor, rounds: int) -> dict[str, Times]:
    """Seconds of a pass, one figure a round and way."""

    def turn(way: Callable[[], AbstractContextManager[Any]]) -> float:
        with way():
            return median_of_turn(lambda: once(layer, graph, x), TURN_S, LEAST_PASSES)

    return in_turns({name: partial(turn, way) for name, way in WAYS.items()}, rounds)


def measured(name: str, source: str, layer: torch.nn.Module, graph: Any, options: Any) -> dict[str, Any]:
    """One row of results, printed."""
    x = torch.randn(graph.num_nodes(), options.width).requires_grad_()
    difference = check(layer, graph, x)
    times = race(layer, graph, x, options.rounds)
    ratio = Ratio.of(times["dgl"], times["onehop"])
    explained = onehop.explain(layer, graph, x).layers
    reasons = [row.reason for row in explained if row.reason is not None]
    print(
        f"{source:12} {name:10} DGL {times['dgl'].median_s * 1e3:9.2f} ms   onehop "
        f"{times['onehop'].median_s * 1e3:9.2f} ms   {ratio.median:5.2f}x "
        f"({ratio.lower_quartile:.2f} to {ratio.upper_quartile:.2f})",
        flush=True,
    )
    return {
        "graph": source, "layer": name, "nodes": graph.num_nodes(), "edges": graph.num_edges(),
        "width": options.width, "seconds": {way: value.to_dict() for way, value in times.items()},
        "speedup": ratio.median, "speedup_quartiles": [ratio.lower_quartile, ratio.upper_quartile],
        "difference": difference, "left_to_dgl_without_gradients": reasons,
    }  # fmt: skip


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=3, threads=True)
    parser.add_argument("--graphs", type=command.names, default="twin:cora,twin:arxiv")
    parser.add_argument("--layers", type=command.names, default="")
    parser.add_argument("--width", type=int, default=64)
    options = command.read(parser)
    reason = DglPeer().available()
    if reason is not None:
        raise SystemExit(f"DGL cannot be measured: {reason}")
    torch.manual_seed(0)
    print(machine_line())
    rows = []
    for source in options.graphs:
        graph = graph_of(source)
        for name, make in layers(options.width).items():
            if not options.layers or name in options.layers:
                rows.append(measured(name, source, make(), graph, options))
                command.write(options, "bench dgl", {"results": rows})


if __name__ == "__main__":
    main()
