"""Layers over a sparse matrix and over the same edges as an ``edge_index``, with and without the patch.

    python -m benchmarks.layers.bench_matrices [--layers SAGE,GCN] [--edges 300000] [--width 64]
                                               [--matrix csr|SparseTensor] [--rounds 15] [--threads N]
                                               [--json FILE]

Forward and backward passes over one graph, the four ways in turns; the results are compared before anything
is timed. Beside the median time of each way: the patched time over the matrix divided by that over the
``edge_index`` (the target is 1.05 at most), and PyG's time over the matrix divided by the patched one.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import columns, harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench.timing import in_turns

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


def measured(layer: torch.nn.Module, options: Options) -> dict[str, float]:
    """The median seconds of each way."""
    nodes, edge_index, matrix = both_forms(options.edges, options.matrix)
    x = torch.randn(nodes, options.width, requires_grad=True)

    def once(edges: Any) -> Tensor:
        x.grad = None
        out: Tensor = layer(x, edges)
        out.sum().backward()
        return out.detach()

    def turn(way: str) -> float:
        edges = edge_index if way.startswith("edge_index") else matrix
        with harness.PYG_AND_ONEHOP["onehop" if way.endswith("patched") else "pyg"]():
            return harness.steady(partial(once, edges), warm=WARM)()

    expected = once(edge_index)
    for edges in (matrix, edge_index):
        with onehop.patch():
            torch.testing.assert_close(once(edges), expected, rtol=TOLERANCE, atol=TOLERANCE)
    times = in_turns({way: partial(turn, way) for way in WAYS}, options.rounds)
    return {way: each.median_s for way, each in times.items()}


def rows(options: Options) -> Iterator[Row]:
    """Measures every layer, one after the other."""
    if options.matrix not in ("csr", "SparseTensor"):
        raise SystemExit(f"--matrix: expected csr or SparseTensor, got {options.matrix!r}.")
    for name in options.layers:
        seconds = measured(layers(options.width)[name](), options)
        yield {
            "layer": name,
            "seconds": seconds,
            "matrix over edge_index": seconds["matrix, patched"] / seconds["edge_index, patched"],
            "speedup": seconds["matrix"] / seconds["matrix, patched"],
        }


LAYERS = tuple(layers(1))
BENCHMARK = Benchmark(
    __doc__,
    "benchmarks/layers/bench_matrices.py",
    rows,
    columns.of(
        f"layer; {'; '.join(f'{way}, ms | seconds/{way} | ms' for way in WAYS)}; "
        "matrix over edge_index | matrix over edge_index | x; PyG over patched | speedup | x"
    ),
    {
        "layers": Option(LAYERS, known=LAYERS),
        "matrix": Option("csr", "torch's csr, or torch_sparse's SparseTensor"),
        "edges": 300_000,
        "width": 64,
    },
    key="cases",
    rounds=15,
    kept=("matrix",),
)

if __name__ == "__main__":
    BENCHMARK.main()
