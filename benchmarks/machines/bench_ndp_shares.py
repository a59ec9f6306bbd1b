"""Shares of aggregation, combination and activation in a GCN's forward pass: the paper's Figure 2 on twins.

    python benchmarks/machines/bench_ndp_shares.py [--edges 12500000] [--hidden 256] [--rounds 3]
                                                   [--json FILE]

Measured on this host, with onehop and with torch's gather and scatter; and modelled for the paper's Xeon Gold
6138 (4 channels of DDR4-2400, 20 cores) as the longer of bytes and operations. Published shares of
aggregation: arxiv 67 %, amazon 74 %, mag 64 %, products 91 %. Twins of more edges than asked for are scaled
down to be measured, which keeps their degrees, and with them the ratio of the three parts.

End to end: aggregation of the whole twin by the machine's model on either side, combination and activation as
measured here (or modelled for the Xeon), which grow with the nodes.
"""

import torch
from ndp_twins import GRAPHS, MEASURED

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line
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
    for columns, outputs in shapes:
        x, weight = torch.randn(graph.num_src, columns), torch.randn(columns, outputs)
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
    for columns, outputs in shapes:
        vectors = 4 * edges * columns
        one_pass = 8 * edges + vectors + 4 * nodes * columns
        # Gathered vectors are written, read again, and added to targets that are read and written.
        scattered = 16 * edges + 3 * vectors + 2 * 4 * nodes * columns
        combination = max(
            2 * nodes * columns * outputs / gflops,
            4 * (nodes * (columns + outputs) + columns * outputs) / gbps,
        )
        for way, moved in (("one pass", one_pass), ("gather and scatter", scattered)):
            times[way]["aggregation"] += moved / gbps
            times[way]["combination"] += combination
            times[way]["activation"] += 2 * 4 * nodes * outputs / gbps
    return times


def percent(parts: dict[str, float]) -> dict[str, float]:
    """Shares of a sum."""
    return {name: 100 * seconds / sum(parts.values()) for name, seconds in parts.items()}


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=3)
    parser.add_argument("--edges", type=int, default=12_500_000, help="most edges of a twin that is measured")
    parser.add_argument("--hidden", type=int, default=256)
    options = command.read(parser)
    print(machine_line())
    results = {}
    for name in MEASURED:
        facts = GRAPHS[name]
        graph = facts.graph()
        whole, scale = graph.num_dst, min(1.0, options.edges / graph.num_edges)
        # Both sides of the machine's model; nothing but times is kept, for the next graph needs the room.
        layers = [
            (layer.baseline.time_ns, layer.time_ns)
            for layer in Machine("grande_16").layers(graph, facts.widths(options.hidden), NdpPlan(), record=0)
        ]
        if scale < 1:
            graph = facts.graph(scale)
        widths = facts.widths(options.hidden)
        shapes = list(zip(widths, [*widths[1:], facts.classes], strict=True))
        here = measured(graph, shapes, options.rounds)
        there = modelled(graph.num_dst, graph.num_edges, shapes)
        rest = {
            where: (parts["combination"] + parts["activation"]) * whole / graph.num_dst
            for where, parts in (("this host", here["onehop"]), ("Xeon", there["one pass"]))
        }
        alone = sum(base for base, _ in layers) / 1e9
        near = sum(time for _, time in layers) / 1e9
        shares = {way: percent(parts) for way, parts in here.items()}
        shares |= {f"Xeon, {way}": percent(parts) for way, parts in there.items()}
        results[name] = {
            "nodes": graph.num_dst,
            "edges": graph.num_edges,
            "scale": scale,
            "published_aggregation_percent": facts.aggregation_percent,
            "seconds": {**here, **{f"Xeon, {way}": parts for way, parts in there.items()}},
            "percent": shares,
            "end_to_end": {
                "rest_seconds": rest,
                "baseline_aggregation_seconds": alone,
                "machine_aggregation_seconds": near,
                "speedup": {where: (time + alone) / (time + near) for where, time in rest.items()},
            },
        }
        figures = ", ".join(f"{way} {parts['aggregation']:.0f} %" for way, parts in shares.items())
        print(
            f"{name:9} aggregation: {figures}; published {facts.aggregation_percent:.0f} %; end to end "
            + ", ".join(f"{x:.2f}x ({where})" for where, x in results[name]["end_to_end"]["speedup"].items()),
            flush=True,
        )
    content = {"edges": options.edges, "hidden": options.hidden, "graphs": results}
    command.write(options, "bench ndp shares", content)


if __name__ == "__main__":
    main()
