"""Layers on small graphs, with and without ``onehop.patch()``: ratios of times, never below 1 if all is well.

    python benchmarks/layers/bench_small.py [--layers GCN,GAT] [--edges 60,1500,10000,30000] [--width 32]
                                            [--rounds 15] [--threads N] [--json FILE]

An ``edge_index`` is "fresh" where every call gets a new copy of it, as mini-batches do, and "repeated" where
all calls share one. Both ways take turns; a ratio is the median of the rounds' ratios, PyG's time over the
patched one's. PyG has two turns a round: the second over the first is a control, which tells how far from 1
two measurements of the same code lie. Results are compared before anything is timed. The last layers listed
are refused by the patch, so that they measure what a refusal costs.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, geometric_mean, in_turns, measure_once

EDGES = (60, 1_500, 10_000, 30_000)
EDGES_A_NODE = 4
HEADS = 4
TOLERANCE = 1e-4
# A turn lasts about so long, after so many calls that are not counted: Python has specialised its code for
# the way that ran before, and needs some calls to do so for the other. Of long calls few are enough, of which
# Python is a small part.
TURN_S = 5e-3
WARM = 30
WARM_S = 0.1


def layers(width: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """Layers of the fast and the row-wise tier, then layers that the patch refuses, by name."""
    from torch_geometric import nn

    half = width // HEADS

    def mlp() -> torch.nn.Module:
        return torch.nn.Linear(width, width)

    accelerated: dict[str, Callable[[], torch.nn.Module]] = {
        "GCN": lambda: nn.GCNConv(width, width),
        "SAGE": lambda: nn.SAGEConv(width, width),
        "SAGE max": lambda: nn.SAGEConv(width, width, aggr="max"),
        "GIN": lambda: nn.GINConv(mlp()),
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
    }
    refused: dict[str, Callable[[], torch.nn.Module]] = {
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
    return accelerated | refused


class _WithInput(torch.nn.Module):
    """A layer that takes the model's input too."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, x, edge_index)  # type: ignore[no-any-return]


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


def measured(once: Callable[[], Tensor], rounds: int) -> tuple[Ratio, Ratio]:
    """PyG's time over the patched one, and over PyG's own in another turn.

    Entering and leaving the patch is outside what is timed.
    """
    expected = once()
    with onehop.patch():
        torch.testing.assert_close(once(), expected, rtol=TOLERANCE, atol=TOLERANCE)
    seconds = max(measure_once(once), 1e-7)
    repeats, warm = math.ceil(TURN_S / seconds), min(WARM, math.ceil(WARM_S / seconds))

    def turn(patched: bool) -> float:
        with onehop.patch() if patched else contextlib.nullcontext():
            measure_once(once, warm)
            return measure_once(once, repeats)

    ways = {"PyG": partial(turn, False), "patched": partial(turn, True), "control": partial(turn, False)}
    times = in_turns(ways, rounds)
    return Ratio.of(times["PyG"], times["patched"]), Ratio.of(times["PyG"], times["control"])


def cases(options: Any) -> Iterator[dict[str, Any]]:
    """Measures every case, one after the other."""
    known = layers(options.width)
    chosen = command.names(options.layers) if options.layers else list(known)
    if unknown := [name for name in chosen if name not in known]:
        raise SystemExit(f"--layers: unknown {', '.join(unknown)}; there are {', '.join(known)}.")
    for name in chosen:
        for edges in options.edges:
            for fresh in (True, False):
                for backward in (False, True):
                    once = one_pass(known[name], edges, options.width, fresh, backward)
                    ratio, control = measured(once, options.rounds)
                    yield {
                        "layer": name,
                        "edges": edges,
                        "edge_index": "fresh" if fresh else "repeated",
                        "pass": "forward and backward" if backward else "forward",
                        "ratio": ratio.median,
                        "quartiles": [ratio.lower_quartile, ratio.upper_quartile],
                        "control": control.median,
                    }


def main() -> None:
    """Prints a line a case, then the least and the geometric mean of each size."""
    parser = command.parser(__doc__, rounds=15, threads=True)
    parser.add_argument("--layers", help="names, separated by commas; all by default")
    parser.add_argument("--edges", type=command.integers, default=list(EDGES))
    parser.add_argument("--width", type=int, default=32)
    options = command.read(parser)
    print(machine_line())
    found = []
    for case in cases(options):
        found.append(case)
        low, high = case["quartiles"]
        print(
            f"{case['layer']:20} {case['edges']:6} {case['edge_index']:9} {case['pass']:21} "
            f"{case['ratio']:6.2f}  ({low:.2f} to {high:.2f})  control {case['control']:.2f}",
            flush=True,
        )
    for edges in options.edges:
        ratios = [case["ratio"] for case in found if case["edges"] == edges]
        print(f"{edges:6} edges: least {min(ratios):.2f}, geometric mean {geometric_mean(ratios):.2f}")
    command.write(options, "benchmarks/layers/bench_small.py", {"cases": found})


if __name__ == "__main__":
    main()
