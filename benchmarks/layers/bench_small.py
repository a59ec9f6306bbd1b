"""Layers on small graphs, with and without ``onehop.patch()``: ratios of times, never below 1 if all is well.

    python -m benchmarks.layers.bench_small [--layers GCN,GAT] [--edges 60,1500,10000,30000] [--width 32]
                                            [--rounds 15] [--threads N] [--json FILE]

An ``edge_index`` is "fresh" where every call gets a new copy of it, as mini-batches do, and "repeated" where
all calls share one. Both ways take turns; a ratio is the median of the rounds' ratios, PyG's time over the
patched one's. PyG has two turns a round: the second over the first is a control, which tells how far from 1
two measurements of the same code are. Results are compared before anything is timed. The last layers listed
are refused by the patch, so that they measure what a refusal costs.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench.timing import Ratio, geometric_mean, measure_once

EDGES = (60, 1_500, 10_000, 30_000)
EDGES_A_NODE = 4
HEADS = 4
TOLERANCE = 1e-4
# A turn takes about so long, after so many calls that are not counted: Python has specialised its code for
# the way that ran before, and needs some calls to do so for the other. Of long calls few are enough, of which
# Python is a small part.
TURN_S = 5e-3
WARM = 30
WARM_S = 0.1
WAYS = {**harness.PYG_AND_ONEHOP, "control": nullcontext}


class _WithInput(torch.nn.Module):
    """A layer that takes the model's input too."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, x, edge_index)  # type: ignore[no-any-return]


def layers(width: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """Layers of the fast and the row-wise tier, then, from Cheb on, layers that the patch refuses."""
    from torch_geometric import nn

    half = width // HEADS
    return {
        "GCN": lambda: nn.GCNConv(width, width),
        "SAGE": lambda: nn.SAGEConv(width, width),
        "SAGE max": lambda: nn.SAGEConv(width, width, aggr="max"),
        "GIN": lambda: nn.GINConv(torch.nn.Linear(width, width)),
        "Graph": lambda: nn.GraphConv(width, width),
        "LG": lambda: nn.LGConv(),
        "SG": lambda: nn.SGConv(width, width, K=2),
        "TAG": lambda: nn.TAGConv(width, width, K=2),
        "Cluster": lambda: nn.ClusterGCNConv(width, width),
        "LE": lambda: nn.LEConv(width, width),
        "GAT": lambda: nn.GATConv(width, half, heads=HEADS),
        "GATv2": lambda: nn.GATv2Conv(width, half, heads=HEADS),
        "Transformer": lambda: nn.TransformerConv(width, half, heads=HEADS),
        "AGNN": lambda: nn.AGNNConv(),
        "ResGated": lambda: nn.ResGatedGraphConv(width, width),
        "Edge": lambda: nn.EdgeConv(torch.nn.Linear(2 * width, width)),
        "General": lambda: nn.GeneralConv(width, width),
        "FiLM": lambda: nn.FiLMConv(width, width),
        "Cheb": lambda: nn.ChebConv(width, width, K=2),
        "FeaSt": lambda: nn.FeaStConv(width, width, heads=HEADS),
        "ARMA": lambda: nn.ARMAConv(width, width),
        "SSG": lambda: nn.SSGConv(width, width, alpha=0.1, K=2),
        "MF": lambda: nn.MFConv(width, width),
        "SuperGAT": lambda: nn.SuperGATConv(width, half, heads=HEADS),
        "Supervised by aggr": lambda: nn.SAGEConv(width, width, aggr="median"),
        "GatedGraph": lambda: nn.GatedGraphConv(width, num_layers=2),
        "GCN2": lambda: _WithInput(nn.GCN2Conv(width, alpha=0.1)),
        "DirGNN": lambda: nn.DirGNNConv(nn.SAGEConv(width, width)),
    }


def one_pass(
    make: Callable[[], torch.nn.Module], edges: int, width: int, fresh: bool, backward: bool
) -> Callable[[], Tensor]:
    """A forward pass, or one with its backward pass; it returns the output and leaves a gradient."""
    torch.manual_seed(0)
    nodes = max(edges // EDGES_A_NODE, 2)
    edge_index = torch.randint(nodes, (2, edges))
    x = torch.randn(nodes, width, requires_grad=True)
    layer = make()

    def once() -> Tensor:
        out: Tensor = layer(x, edge_index.clone() if fresh else edge_index)
        if backward:
            x.grad = None
            out.sum().backward()
        return out.detach()

    return once


def measured(once: Callable[[], Tensor], rounds: int) -> Row:
    """PyG's time over the patched one, and over PyG's own in another turn."""
    expected = once()
    with onehop.patch():
        torch.testing.assert_close(once(), expected, rtol=TOLERANCE, atol=TOLERANCE)
    warm = min(WARM, math.ceil(WARM_S / max(measure_once(once), 1e-7)))
    times = harness.in_ways(WAYS, harness.steady(once, TURN_S, warm), rounds)
    found, control = (Ratio.of(times["pyg"], times[way]) for way in ("onehop", "control"))
    return {**harness.spread(found), "control": control.median}


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    known = layers(options.width)
    cases = itertools.product(options.layers, options.edges, (True, False), (False, True))
    for name, edges, fresh, backward in cases:
        once = one_pass(known[name], edges, options.width, fresh, backward)
        yield {
            "layer": name,
            "edges": edges,
            "edge_index": "fresh" if fresh else "repeated",
            "pass": "forward and backward" if backward else "forward",
            **measured(once, options.rounds),
        }


def least(options: Options, rows: list[Row]) -> Iterator[str]:
    """The least and the geometric mean of each size."""
    for edges in options.edges:
        ratios = [row["ratio"] for row in rows if row["edges"] == edges]
        yield f"{edges:6} edges: least {min(ratios):.2f}, geometric mean {geometric_mean(ratios):.2f}"


LAYERS = tuple(layers(HEADS))
BENCHMARK = Benchmark(
    "benchmarks/layers/bench_small.py",
    rows,
    "layer; edges; edge_index; pass; over PyG | ratio | gain quartiles; control | control | x",
    {"layers": Option(LAYERS, known=LAYERS), "edges": EDGES, "width": 32},
    key="cases",
    rounds=15,
    notes=least,
)

if __name__ == "__main__":
    BENCHMARK.main()
