"""What the near-rank machine's model comes to where the answer is known beforehand.

python benchmarks/machines/bench_ndp_limits.py [--json FILE]
"""

import math

import torch

from onehop.bench import command
from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpConfig, NdpPlan, Topology, load

FREE = {
    "host": {"channel_gbps": math.inf, "reduce_gbps": math.inf},
    "control": {"start_ns": 0.0, "poll_ns": 0.0, "access_ns": 0.0, "flush_mib": 0.0},
    "module": {"clock_mhz": 1e9},
}


def even(nodes: int, degree: int) -> Graph:
    """A graph with as many edges of every rank in every window."""
    target = torch.arange(nodes).repeat_interleave(degree)
    source = (target + torch.arange(degree).repeat(nodes)) % nodes
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=nodes)


def ranks_a_channel(graph: Graph) -> list[dict]:
    """Gains without a host's limits and without imbalance, which should be the ranks of a channel."""
    lines = []
    for dimms, ranks in ((1, 1), (1, 2), (2, 2), (4, 2)):
        machine = Machine(NdpConfig("ideal", Topology(4, dimms, ranks)).change(**FREE))
        found = machine.layers(graph, [256], NdpPlan("rank", retile="none"))[0]
        a_burst = machine.memory.random(16, on_bus=True).ns / machine.memory.random(16).ns
        speedup = found.baseline.time_ns / found.time_ns
        lines.append(
            {
                "ranks_per_channel": dimms * ranks,
                "speedup": speedup,
                "bus_over_rank_ns_a_burst": a_burst,
                "speedup_at_equal_bursts": speedup / a_burst,
            }
        )
    return lines


def short_slices(graph: Graph) -> list[dict]:
    """Time a useful byte of system-pods, over that at slices of 64 bytes: should be 64 / slice."""
    machine = Machine(load("grande_32").change(**FREE))

    def a_useful_byte(width: int) -> float:
        run = machine.layers(graph, [width], NdpPlan("system", retile="none"))[0].run
        fills = len(run.schedule.ends_ns) * 32 * machine.memory.fill_ns
        return (run.schedule.rank_busy_ns[0, 1] - fills) / run.bytes()["feature_useful"]

    full = a_useful_byte(512)
    return [
        {"slice_bytes": width // 8, "loss": a_useful_byte(width) / full, "expected": 64 * 8 / width}
        for width in (512, 256, 128, 64)
    ]


def conservation(graph: Graph) -> list[dict]:
    """Bytes of every mapping over what the published table's formulas come to: should be 1."""
    lines = []
    for name in ("grande_16", "grande_32"):
        machine = Machine(name)
        topology, nodes, edges = machine.config.topology, graph.num_dst, graph.num_edges
        for mapping in machine.layers(graph, [256], NdpPlan(retile="none"))[0].candidates:
            run = machine.layers(graph, [256], NdpPlan(mapping, retile="none"))[0].run
            pods, moved = run.traffic.pods, run.bytes()
            over_host = pods.size > topology.ranks_per_dimm
            expected = {
                "adjacency_useful": 8 * edges,
                "feature_read": edges * pods.size * 64 * -(-4 * 256 // (64 * pods.size)),
                "bundle_read": 8 * edges * over_host,
                "bundle_write": 8
                * edges
                * topology.channels
                // min(pods.count, topology.channels)
                * over_host,
                "finals_write": nodes * 4 * 256,
                "write_back": nodes * pods.size * 64 * -(-4 * 256 // (64 * pods.size)),
            }
            lines.append(
                {
                    "machine": name,
                    "mapping": mapping,
                    "exact": all(moved[key] == value for key, value in expected.items()),
                    "bytes": {key: moved[key] for key in expected},
                    "expected": expected,
                }
            )
    return lines


def main() -> None:
    """Reads the options, runs, prints."""
    parser = command.parser(__doc__)
    options = command.read(parser)
    graph = even(8192, 64)
    gains, losses, kept = ranks_a_channel(graph), short_slices(graph), conservation(graph)
    for line in gains:
        print(
            f"{line['ranks_per_channel']} ranks a channel: {line['speedup']:.3f}x over the host, "
            f"{line['speedup_at_equal_bursts']:.3f}x at equal times a burst"
        )
    for line in losses:
        print(
            f"slice of {line['slice_bytes']} bytes: {line['loss']:.6f} times as long a useful byte, expected "
            f"{line['expected']:g}"
        )
    for line in kept:
        state = "equal the table" if line["exact"] else f"DIFFER: {line['bytes']} and {line['expected']}"
        print(f"{line['machine']} {line['mapping']}: bytes {state}")
    content = {"ranks_a_channel": gains, "short_slices": losses, "conservation": kept}
    command.write(options, "bench ndp limits", content)


if __name__ == "__main__":
    main()
