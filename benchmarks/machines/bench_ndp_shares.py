"""Shares of aggregation, combination and activation in a GCN's forward pass: the paper's Figure 2 on twins.

    python -m benchmarks.machines.bench_ndp_shares [--edges 12500000] [--hidden 256] [--rounds 3]
                                                      [--json FILE]

Measured on this host, with onehop and with torch's gather and scatter; and modelled for the paper's Xeon Gold
6138 (4 channels of DDR4-2400, 20 cores) as the longer of bytes and operations. Published shares of
aggregation: arxiv 67 %, amazon 74 %, mag 64 %, products 91 %. Twins of more edges than asked for are scaled
down to be measured, which keeps their degrees, and with them the ratio of the three parts.

End to end: aggregation of the whole twin by the machine's model on either side, combination and activation as
measured here (or modelled for the Xeon), which grow with the nodes.
"""

from collections.abc import Iterator

import torch

import onehop
from benchmarks import columns
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.machines.ndp_twins import GRAPHS, MEASURED
from onehop.bench.timing import timed
from onehop.machines.ndp import Machine, NdpPlan

# 4 channels x 19.2 GB/s; 20 cores x 64 operations a clock x 1.9 GHz with AVX-512 on all cores. The share of
# either that software reaches is not known; 70 % is assumed for both.
XEON_GBPS, XEON_GFLOPS, REACHED = 76.8, 20 * 64 * 1.9, 0.7
PARTS = ("aggregation", "combination", "activation")


def scatter(edge_index: torch.Tensor, x: torch.Tensor, nodes: int) -> torch.Tensor:
    """Gather and scatter, a block of edges at a time."""
    out = x.new_zeros(nodes, x.size(1))
    for block in edge_index.split(1 << 20, dim=1):
        out.index_add_(0, block[1], x.index_select(0, block[0]))
    return out


def measured(graph: onehop.Graph, shapes: list[tuple[int, int]], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each part, over all layers, with either way to aggregate."""
    times = {way: dict.fromkeys(PARTS, 0.0) for way in ("onehop", "torch gather and scatter")}
    edge_index = graph.edge_index()
    for width, outputs in shapes:
        x, weight = torch.randn(graph.num_src, width), torch.randn(width, outputs)
        ways = {
            "onehop": lambda x=x: onehop.aggregate(graph, x),
            "torch gather and scatter": lambda x=x: scatter(edge_index, x, graph.num_dst),
        }
        combined = x @ weight
        combination = timed(lambda x=x, weight=weight: x @ weight, rounds).median_s
        activation = timed(combined.relu, rounds).median_s
        for way, body in ways.items():
            times[way]["aggregation"] += timed(body, rounds).median_s
            times[way]["combination"] += combination
            times[way]["activation"] += activation
    return times


def modelled(nodes: int, edges: int, shapes: list[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Seconds of each part on the paper's Xeon: one pass over the edges' vectors, or gather and scatter."""
    gbps, gflops = XEON_GBPS * 1e9 * REACHED, XEON_GFLOPS * 1e9 * REACHED
    times = {way: dict.fromkeys(PARTS, 0.0) for way in ("one pass", "gather and scatter")}
    for width, outputs in shapes:
        vectors = 4 * edges * width
        one_pass = 8 * edges + vectors + 4 * nodes * width
        # Gathered vectors are written, read again, and added to targets that are read and written.
        scattered = 16 * edges + 3 * vectors + 2 * 4 * nodes * width
        combination = max(
            2 * nodes * width * outputs / gflops,
            4 * (nodes * (width + outputs) + width * outputs) / gbps,
        )
        for way, moved in (("one pass", one_pass), ("gather and scatter", scattered)):
            times[way]["aggregation"] += moved / gbps
            times[way]["combination"] += combination
            times[way]["activation"] += 2 * 4 * nodes * outputs / gbps
    return times


def percent(parts: dict[str, float]) -> dict[str, float]:
    """Shares of a sum."""
    return {name: 100 * seconds / sum(parts.values()) for name, seconds in parts.items()}


def rows(options: Options) -> Iterator[Row]:
    """Measures and models the parts of each graph."""
    for name in options.graphs:
        facts = GRAPHS[name]
        graph = facts.graph()
        whole, scale = graph.num_dst, min(1.0, options.edges / graph.num_edges)
        widths = facts.widths(options.hidden)
        # Both sides of the machine's model; nothing but times is kept, because the next graph needs the room.
        layers = Machine("grande_16").layers(graph, widths, NdpPlan(), record=0)
        alone = sum(layer.baseline.time_ns for layer in layers) / 1e9
        near = sum(layer.time_ns for layer in layers) / 1e9
        del layers
        if scale < 1:
            graph = facts.graph(scale)
        shapes = list(zip(widths, [*widths[1:], facts.classes], strict=True))
        here = measured(graph, shapes, options.rounds)
        there = modelled(graph.num_dst, graph.num_edges, shapes)
        rest = {
            where: (parts["combination"] + parts["activation"]) * whole / graph.num_dst
            for where, parts in (("this host", here["onehop"]), ("Xeon", there["one pass"]))
        }
        seconds = {**here, **{f"Xeon, {way}": parts for way, parts in there.items()}}
        yield {
            "graph": name,
            "nodes": graph.num_dst,
            "edges": graph.num_edges,
            "scale": scale,
            "published_aggregation_percent": facts.aggregation_percent,
            "seconds": seconds,
            "percent": {way: percent(parts) for way, parts in seconds.items()},
            "end_to_end": {
                "rest_seconds": rest,
                "baseline_aggregation_seconds": alone,
                "machine_aggregation_seconds": near,
                "speedup": {where: (time + alone) / (time + near) for where, time in rest.items()},
            },
        }


WAYS = ("onehop", "torch gather and scatter", "Xeon, one pass", "Xeon, gather and scatter")
BENCHMARK = Benchmark(
    __doc__,
    "bench ndp shares",
    rows,
    columns.of(
        f"graph; {'; '.join(f'{way}, % | percent/{way}/aggregation | {{:.0f}}' for way in WAYS)}; "
        "published, % | published_aggregation_percent | {:.0f}; "
        "end to end | end_to_end/speedup/this host | x; on the Xeon | end_to_end/speedup/Xeon | x"
    ),
    {"edges": Option(12_500_000, "most edges of a twin that is measured"), "hidden": 256, "graphs": MEASURED},
    key=None,
    rounds=3,
    threads=False,
    kept=("edges", "hidden"),
    more=lambda options, rows: {
        "graphs": {row["graph"]: {k: v for k, v in row.items() if k != "graph"} for row in rows},
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
