"""Layers on small graphs, with and without ``onehop.patch()``: ratios of times, never below 1 if all is well.

    python -m benchmarks.layers.bench_small [--layers GCNConv,policy-gcn] [--edges 60,1500,10000,30000]
                                            [--threads 1,2] [--width 32] [--rounds 5] [--json FILE]

All of PyG's layers are measured (``convs.py``); models of three layers as they choose an action or answer a
request (``policy-``: 64 wide, 160 edges, fresh, inference); and PyG's functions of the rows of edges, after
the gather of these rows (``rows-``). An ``edge_index`` is "fresh" where every call gets a new copy of it,
as mini-batches do, and "repeated" where all calls share one. Inference runs under ``torch.no_grad()``;
training is a forward and a backward pass. Both ways take turns; a ratio is the median of the rounds'
ratios, PyG's time over the patched one's. PyG has two turns a round: the second over the first is a
control, which tells how far from 1 two measurements of the same code are. Results and the gradients of
features are compared before anything is timed. All of it takes about 25 minutes.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric import nn, utils

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.layers.convs import CONVS, Conv, Given, given
from onehop.bench.plain_models import SERVED
from onehop.bench.timing import Ratio, geometric_mean, measure_once, quantile

EDGES = (10, 20, 40, 60, 100, 200, 500, 1_000)
EDGES_A_NODE = 4
POLICY_EDGES = 160
TOLERANCE = 1e-4
# The lowest ratio that two measurements of the same code may well have.
EVEN = 0.97
# A turn takes about so long, after so many calls that are not counted: Python has specialised its code for
# the way that ran before, and needs some calls to do so for the other. Of long calls few are enough, of which
# Python is a small part.
TURN_S = 5e-3
WARM = 30
WARM_S = 0.1
WAYS = {**harness.PYG_AND_ONEHOP, "control": nullcontext}


def _over_edges(make: Callable[[int], torch.nn.Module]) -> Conv:
    return Conv(lambda width, _: make(width), lambda layer, on: layer(on.x, on.edges))


class _Rows(torch.nn.Module):
    """PyG's softmax of the rows of edges over each destination, or their reduction."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        (source, target), nodes = edge_index, x.size(0)
        rows = x.index_select(0, source)
        # By their module, in which the patch replaces them.
        if self.reduce == "softmax":
            return utils.softmax(rows, target, num_nodes=nodes)
        return utils.scatter(rows, target, 0, nodes, self.reduce)


def _rows(reduce: str) -> Conv:
    return _over_edges(lambda _: _Rows(reduce))


FUNCTIONS = {f"rows-{reduce}": _rows(reduce) for reduce in ("softmax", "max", "mean")}
POLICIES = {f"policy-{name}": _over_edges(make) for name, make in SERVED.items()}
LAYERS = {
    **CONVS,
    "SAGEConv-max": _over_edges(lambda width: nn.SAGEConv(width, width, aggr="max")),
    "SAGEConv-median": _over_edges(lambda width: nn.SAGEConv(width, width, aggr="median")),
    **FUNCTIONS,
    **POLICIES,
}


def one_pass(name: str, edges: int, width: int, fresh: bool, training: bool) -> Callable[[], list[Tensor]]:
    """One inference, or one forward and backward pass; it returns the output and the features' gradient."""
    conv, nodes = LAYERS[name], max(edges // EDGES_A_NODE, 2)
    torch.manual_seed(0)
    on = given(nodes, torch.randint(nodes, (2, edges)), width)
    layer = conv.make(width, on)

    def operands() -> Given:
        return replace(on, edges=on.edges.clone()) if fresh else on

    def train() -> list[Tensor]:
        on.x.grad = None
        out: Tensor = conv.call(layer, operands())
        out.square().mean().backward()  # a sum over a normalised batch would have no gradient
        return [out.detach(), on.x.grad]

    @torch.no_grad()
    def infer() -> list[Tensor]:
        return [conv.call(layer, operands())]

    return train if training else infer


def measured(once: Callable[[], list[Tensor]], rounds: int) -> Row:
    """PyG's time over the patched one, and over PyG's own in another turn."""
    expected = once()
    with onehop.patch():
        difference = harness.apart_by(once(), expected)
    warm = min(WARM, math.ceil(WARM_S / max(measure_once(once), 1e-7)))
    times = harness.in_ways(WAYS, harness.steady(once, TURN_S, warm), rounds)
    found, control = (Ratio.of(times["pyg"], times[way]) for way in ("onehop", "control"))
    wrong = not difference <= TOLERANCE
    return {**harness.spread(found), "control": control.median, "difference": difference, "wrong": wrong}


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, one after the other."""
    for threads, name in itertools.product(options.threads, options.layers):
        torch.set_num_threads(threads)
        policy = name in POLICIES
        sizes = (POLICY_EDGES,) if policy else options.edges
        kinds = [(True, False)] if policy else list(itertools.product((True, False), (False, True)))
        width = LAYERS[name].width if policy else min(options.width, LAYERS[name].width)
        for edges, (fresh, training) in itertools.product(sizes, kinds):
            yield {
                "layer": name,
                "edges": edges,
                "threads": threads,
                "edge_index": "fresh" if fresh else "repeated",
                "pass": "training" if training else "inference",
                **measured(one_pass(name, edges, width, fresh, training), options.rounds),
            }


def summary(options: Options, rows: list[Row]) -> Iterator[str]:
    """The ratios of each size, of all cases, and the cases of the least ratios."""
    for edges in dict.fromkeys(row["edges"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["edges"] == edges]
        yield f"{edges:6} edges: least {min(ratios):.2f}, geometric mean {geometric_mean(ratios):.2f}"
    ordered = sorted(rows, key=lambda row: row["ratio"])
    below, below_itself = (sum(row[key] < EVEN for row in rows) for key in ("ratio", "control"))
    yield (
        f"{len(rows)} cases: {below} below {EVEN} (PyG over itself: {below_itself}), "
        f"median {quantile((row['ratio'] for row in rows), 0.5):.2f}; the least:"
    )
    for row in ordered[:5]:
        what = f"{row['layer']}, {row['edges']} edges, {row['edge_index']}, {row['pass']}"
        yield f"  {row['ratio']:.2f}: {what}, --threads {row['threads']}"


BENCHMARK = Benchmark(
    "benchmarks/layers/bench_small.py",
    rows,
    "layer; edges; threads; edge_index; pass; over PyG | ratio | gain quartiles; control | control | x; "
    " | wrong | wrong",
    {"layers": Option(tuple(LAYERS), known=tuple(LAYERS)), "edges": EDGES, "threads": (1, 2), "width": 32},
    key="cases",
    rounds=5,
    threads=False,
    notes=summary,
)

if __name__ == "__main__":
    BENCHMARK.main()
