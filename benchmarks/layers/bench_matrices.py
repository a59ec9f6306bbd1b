"""Layers over a sparse matrix and over the same edges as an ``edge_index``, with and without the patch.

    python benchmarks/layers/bench_matrices.py [--layers SAGE,GCN] [--edges 300000] [--width 64]
                                               [--matrix csr|SparseTensor] [--rounds 15] [--threads N]
                                               [--json FILE]

Forward and backward passes over one graph, the four ways in turns; the results are compared before anything
is timed. A line shows the median time of each way in milliseconds, the patched time over the matrix divided
by that over the ``edge_index`` (1.05 at most is the aim), and PyG's time over the matrix divided by the
patched one.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line
from onehop.bench.timing import in_turns, measure_once

EDGES_A_NODE = 8
TOLERANCE = 1e-4
# Calls before each measurement that are not counted.
WARM = 2
WAYS = ("edge_index", "matrix", "edge_index, patched", "matrix, patched")


def layers(width: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """Layers that aggregate over either, by name."""
    from torch_geometric import nn

    return {
        "SAGE": lambda: nn.SAGEConv(width, width),
        "SAGE sum": lambda: nn.SAGEConv(width, width, aggr="sum"),
        "SAGE max": lambda: nn.SAGEConv(width, width, aggr="max"),
        "GIN": lambda: nn.GINConv(torch.nn.Linear(width, width)),
        "GCN": lambda: nn.GCNConv(width, width),
        "GCN without loops": lambda: nn.GCNConv(width, width, add_self_loops=False),
    }


def both_forms(edges: int, form: str) -> tuple[int, Tensor, Any]:
    """Nodes, a random ``edge_index`` without loops and repeated edges, and the same edges as a matrix."""
    from torch_geometric.typing import SparseTensor
    from torch_geometric.utils import to_torch_csr_tensor

    torch.manual_seed(0)
    nodes = max(edges // EDGES_A_NODE, 2)
    edge_index = torch.randint(nodes, (2, edges)).unique(dim=1)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = edge_index[:, torch.randperm(edge_index.size(1))]
    if form == "csr":
        return nodes, edge_index, to_torch_csr_tensor(edge_index.flip(0), size=(nodes, nodes))
    return nodes, edge_index, SparseTensor(row=edge_index[1], col=edge_index[0], sparse_sizes=(nodes, nodes))


def measured(make: Callable[[], torch.nn.Module], options: Any) -> dict[str, float]:
    """The median seconds of each way."""
    nodes, edge_index, matrix = both_forms(options.edges, options.matrix)
    x, layer = torch.randn(nodes, options.width, requires_grad=True), make()

    def once(edges: Any) -> Tensor:
        x.grad = None
        out: Tensor = layer(x, edges)
        out.sum().backward()
        return out.detach()

    def turn(way: str) -> float:
        edges = edge_index if way.startswith("edge_index") else matrix
        with onehop.patch() if way.endswith("patched") else contextlib.nullcontext():
            measure_once(partial(once, edges), WARM)
            return measure_once(partial(once, edges))

    expected = once(edge_index)
    for edges in (matrix, edge_index):
        with onehop.patch():
            torch.testing.assert_close(once(edges), expected, rtol=TOLERANCE, atol=TOLERANCE)
    times = in_turns({way: partial(turn, way) for way in WAYS}, options.rounds)
    return {way: each.median_s for way, each in times.items()}


def cases(options: Any) -> Iterator[dict[str, Any]]:
    """Measures every layer, one after the other."""
    known = layers(options.width)
    chosen = command.names(options.layers) if options.layers else list(known)
    if unknown := [name for name in chosen if name not in known]:
        raise SystemExit(f"--layers: unknown {', '.join(unknown)}; there are {', '.join(known)}.")
    for name in chosen:
        seconds = measured(known[name], options)
        yield {
            "layer": name,
            "seconds": seconds,
            "matrix over edge_index": seconds["matrix, patched"] / seconds["edge_index, patched"],
            "speedup": seconds["matrix"] / seconds["matrix, patched"],
        }


def main() -> None:
    """Prints a line a layer."""
    parser = command.parser(__doc__, rounds=15, threads=True)
    parser.add_argument("--layers", help="names, separated by commas; all by default")
    parser.add_argument(
        "--matrix", choices=("csr", "SparseTensor"), default="csr", help="torch's, or torch_sparse's"
    )
    parser.add_argument("--edges", type=int, default=300_000)
    parser.add_argument("--width", type=int, default=64)
    options = command.read(parser)
    print(machine_line())
    print(f"{'layer':18}" + "".join(f"{way:>22}" for way in WAYS) + "   matrix / edge_index   PyG / patched")
    found = []
    for case in cases(options):
        found.append(case)
        shown = "".join(f"{case['seconds'][way] * 1e3:22.1f}" for way in WAYS)
        print(
            f"{case['layer']:18}{shown}{case['matrix over edge_index']:22.2f}{case['speedup']:16.2f}",
            flush=True,
        )
    command.write(options, "benchmarks/layers/bench_matrices.py", {"matrix": options.matrix, "cases": found})


if __name__ == "__main__":
    main()
