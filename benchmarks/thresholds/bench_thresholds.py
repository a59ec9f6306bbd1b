"""What each threshold of :mod:`onehop.thresholds` is worth, in a case where it decides.

    python -m benchmarks.thresholds.bench_thresholds [--only few_edges,few_work] [--rounds 15]
                                                     [--threads N] [--json FILE]

Every case runs under ``onehop.patch()``, with the threshold as it is and with another value that takes the
decision the other way. The two ways take turns; a ratio is the median of the rounds' ratios, the time with
the other value over the time with the threshold. A threshold whose cases all have ratios below 1.03 does not
pay. Not measured: ``wide_edges``, which is a limit of a format; ``compiled_edges``, a switch for tests;
``block_bytes``, ``block_edges`` and ``product_block_rows``, which are sizes; ``sorted_edges``, below which
PyG's order is another; and ``awaited_numbers``, which needs a GPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn, utils

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import thresholds
from onehop.bench.timing import Ratio, interleave

NEVER = 1 << 60
CONTROL = "control"
Once = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A case in which a threshold decides.

    Attributes:
        name: The threshold.
        other: The value that decides the other way.
        about: What runs.
        make: Makes the call.
    """

    name: str
    other: int
    about: str
    make: Callable[[], Once]


def edges(count: int, nodes: int, seed: int = 0) -> Tensor:
    """[2, count], random."""
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


def trained(
    layer: torch.nn.Module, *inputs: Any, fresh: bool = False, new_features: bool = False
) -> Callable[[], None]:
    """A forward and a backward pass of a layer.

    Args:
        layer: The layer.
        *inputs: Features, edges, and the further arguments of its ``forward``.
        fresh: Whether each call gets a new copy of the edges, as mini-batches do.
        new_features: Whether each call gets a new copy of the features.
    """
    x, edge_index, *rest = inputs

    def once() -> None:
        layer.zero_grad()
        out = layer(x.clone() if new_features else x, edge_index.clone() if fresh else edge_index, *rest)
        out.sum().backward()

    return once


def features(rows: int, width: int, learned: bool = False) -> Tensor:
    """[rows, width], random."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1), requires_grad=learned)


def one_layer(
    make: Callable[[], torch.nn.Module],
    count: int,
    nodes: int,
    width: int,
    learned: bool = True,
    **options: bool,
) -> Once:
    """A forward and a backward pass over a random graph."""
    torch.manual_seed(0)
    return trained(make(), features(nodes, width, learned), edges(count, nodes), **options)


def with_edge_features(make: Callable[[], torch.nn.Module], columns: int, count: int = 50_000) -> Once:
    """The same with features of edges."""
    torch.manual_seed(0)
    nodes = count // 10
    return trained(make(), features(nodes, 64, True), edges(count, nodes), features(count, columns))


def weighted_sum(count: int, width: int) -> Once:
    """Aggregation with weights that stay the same, without gradients."""
    graph = onehop.Graph.from_edge_index(edges(count, count // 10))
    x, weight = features(count // 10, width), torch.rand(count)
    return partial(onehop.aggregate, graph, x, weight=weight)


def linear(rows: int, width: int, features_of: str) -> Once:
    """A linear step with its gradients: of learned features, or of constant ones, dense or with 1 % not 0."""
    weight = features(width if features_of == "learned" else 16, width, True)
    x = features(rows, width, features_of == "learned")
    if features_of == "sparse":
        x = (torch.rand(rows, width, generator=torch.Generator().manual_seed(2)) < 0.01).float()

    def once() -> None:
        F.linear(x, weight).sum().backward()

    return once


def dropped(elements: int, learned: bool) -> Once:
    """Dropout; with its backward pass where the features are learned."""
    x = features(elements // 64, 64, learned)

    def once() -> None:
        out = F.dropout(x, 0.5, training=True)
        if learned:
            out.sum().backward()

    return once


def mean_of_rows(rows: int) -> Once:
    """PyG's ``scatter`` by a sorted index that is new in every call."""
    index = torch.arange(rows) // 16
    x = features(rows, 64, True)

    def once() -> None:
        utils.scatter(x, index.clone(), dim_size=rows // 16, reduce="mean").sum().backward()

    return once


def heterogeneous(count: int) -> Once:
    """HGTConv with so many relations of 20,000 edges among 5,000 nodes of one type."""
    torch.manual_seed(0)
    kinds = [("a", str(number), "a") for number in range(count)]
    layer = nn.HGTConv(64, 64, (["a"], kinds), heads=4)
    at = {kind: edges(20_000, 5_000, seed) for seed, kind in enumerate(kinds)}
    x = features(5_000, 64, True)

    def once() -> None:
        layer({"a": x}, at)["a"].sum().backward()

    return once


def pna(nodes: int) -> Once:
    """PNAConv over a graph with many rows of each degree."""
    torch.manual_seed(0)
    at = edges(nodes * 8, nodes)
    degrees = torch.bincount(torch.bincount(at[1], minlength=nodes))
    names = ["mean", "min", "max", "std"]
    layer = nn.PNAConv(64, 64, names, ["identity", "amplification", "attenuation"], degrees)
    return trained(layer, features(nodes, 64, True), at)


def tuned() -> Once:
    """The first ten passes over a graph under ``patch(tune="auto")``."""
    torch.manual_seed(0)
    layer, x = nn.GCNConv(16, 16), features(2_708, 16, True)

    def once() -> None:
        at = edges(10_556, 2_708)
        with onehop.patch(tune="auto"):
            for _ in range(10):
                layer(x, at).sum().backward()

    return once


def one(kind: Callable[..., torch.nn.Module], *sizes: int, **options: Any) -> Callable[[], Once]:
    """Makes a layer over a random graph of so many edges and nodes, of this width."""
    count, nodes, width = sizes
    return partial(one_layer, partial(kind, width, options.pop("out", width)), count, nodes, width, **options)


def cases() -> Iterator[Case]:
    """Every case."""
    constant = {"learned": False}
    new = {**constant, "new_features": True}
    known = partial(one, nn.SAGEConv)
    edge_gat = partial(nn.GATv2Conv, 64, 16, heads=4)
    cg = partial(with_edge_features, partial(nn.CGConv, 64, 128), 128)
    attended = {
        columns: partial(with_edge_features, partial(edge_gat, edge_dim=columns), columns)
        for columns in (4, 16, 64)
    }
    graph_conv, graph = partial(one, nn.GraphConv, out=16), (10_000, 2_500, 64)
    for name, other, about, make in (
        ("meetings", 1, "GCNConv, constant features that are new in every call",
         one(nn.GCNConv, 500_000, 50_000, 64, **new)),
        ("kept_work", 0, "GraphConv, constant features, 10,000 edges of 64",
         graph_conv(*graph, **constant)),
        ("kept_work", 0, "GraphConv, constant features that are new, 10,000 edges of 64",
         graph_conv(*graph, **new)),
        ("ordered_edges", 0, "aggregate, constant weights, 50,000 edges of 16",
         partial(weighted_sum, 50_000, 16)),
        ("pooled_bytes", 0, "aggregate, 2,700 rows of 64", partial(weighted_sum, 27_000, 64)),
        ("serial_work", 0, "aggregate, 1,000 edges of 16", partial(weighted_sum, 1_000, 16)),
        ("serial_work", 0, "aggregate, 500 edges of 64", partial(weighted_sum, 500, 64)),
        ("product_work", 0, "a linear step, 10,000 by 64 by 64", partial(linear, 10_000, 64, "learned")),
        ("product_work", 0, "a linear step, 200 by 64 by 64", partial(linear, 200, 64, "learned")),
        ("sparse_numbers", 0, "a linear step, 1,000 by 500, 1 % of them not 0",
         partial(linear, 1_000, 500, "sparse")),
        ("sparse_numbers", 0, "a linear step, 1,000 by 500, all of them not 0",
         partial(linear, 1_000, 500, "dense")),
        ("few_edges", 0, "SAGEConv, 1,000 fresh edges of 32", known(1_000, 250, 32, fresh=True)),
        ("few_edges", NEVER, "SAGEConv, 8,000 fresh edges of 8", known(8_000, 2_000, 8, fresh=True)),
        ("few_work", NEVER, "SAGEConv, 3,000 fresh edges of 128", known(3_000, 750, 128, fresh=True)),
        ("few_edges", 0, "SAGEConv, 1,000 known edges of 32", known(1_000, 250, 32)),
        ("few_edges", NEVER, "SAGEConv, 8,000 known edges of 8", known(8_000, 2_000, 8)),
        ("few_work", NEVER, "SAGEConv, 3,000 known edges of 128", known(3_000, 750, 128)),
        ("cached_bytes", 0, "SAGEConv, median, 10,000 edges of 32",
         one(partial(nn.SAGEConv, aggr="median"), 10_000, 2_500, 32)),
        ("edge_columns", 0, "GATv2Conv, 4 columns of edges", attended[4]),
        ("edge_columns", 0, "GATv2Conv, 16 columns of edges", attended[16]),
        ("edge_columns", NEVER, "GATv2Conv, 64 columns of edges", attended[64]),
        ("edge_columns", NEVER, "CGConv, 128 columns of edges", cg),
        ("rows_a_node", NEVER, "HGTConv, 16 relations", partial(heterogeneous, 16)),
        ("rows_a_node", 0, "HGTConv, 4 relations", partial(heterogeneous, 4)),
        ("degree_rows", 0, "PNAConv, 20,000 nodes", partial(pna, 20_000)),
        ("degree_rows", NEVER, "PNAConv, 20,000 nodes", partial(pna, 20_000)),
        ("direct_numbers", 0, "scatter, mean of 1.3 million numbers", partial(mean_of_rows, 20_000)),
        ("direct_numbers", 0, "scatter, mean of 3.2 million numbers", partial(mean_of_rows, 50_000)),
        ("tuned_work", 0, 'patch(tune="auto"), GCNConv, 10,000 edges of 16, first ten passes', tuned),
        ("dropout_elements", 0, "dropout of 512", partial(dropped, 512, False)),
        ("dropout_recorded_elements", 0, "dropout of 4,096 with its gradient", partial(dropped, 4_096, True)),
        ("dropout_share", 1, "dropout of 262,144", partial(dropped, 262_144, True)),
    ):  # fmt: skip
        yield Case(name, other, about, make)


def measured(case: Case, rounds: int) -> Row:
    """A line of the result file."""
    once = case.make()

    def under(value: int) -> None:
        with thresholds.changed(**{case.name: value}):
            once()

    same = partial(under, getattr(thresholds.now, case.name))
    another = partial(under, case.other)
    with onehop.patch():
        for _ in range(3):  # what is kept is there for both
            same()
            another()
        times = interleave({"": same, "other": another, CONTROL: same}, rounds)
    ratio, control = (Ratio.of(times[way], times[""]) for way in ("other", CONTROL))
    return {
        "threshold": case.name,
        "other": case.other,
        "case": case.about,
        "s": times[""].median_s,
        **harness.spread(ratio),
        "control": control.median,
    }


def rows(options: Options) -> Iterator[Row]:
    """Measures every case, or those of some thresholds."""
    for case in cases():
        if not options.only or case.name in options.only:
            yield measured(case, options.rounds)


BENCHMARK = Benchmark(
    "benchmarks/thresholds/bench_thresholds.py",
    rows,
    "threshold; other; case; ms | s | ms; ratio | ratio | gain quartiles; control | control | x",
    {"only": Option((), "names of thresholds")},
    key="cases",
    rounds=15,
)

if __name__ == "__main__":
    BENCHMARK.main()
