"""Time and traffic of graphs of billions of edges on many machines, from what was measured on one.

    python benchmarks/distributed/estimate_scale.py [--measured FILE] [--json FILE]

The rate of computing is that of the run with most processes that have a core each, for all of its processes
together; the partition is as good, beside one by chance, as the greedy one was there. The model is a GCN of
two layers: 128 features, 256 hidden columns, 172 classes. FILE is what bench_distributed.py wrote.
"""

import json
from dataclasses import asdict
from pathlib import Path

from onehop.bench import command
from onehop.distributed import cost

FEATURES, HIDDEN, CLASSES = 128, 256, 172
# (nodes, edges); in papers100M every citation counts in both directions.
GRAPHS = {"papers100M": (111e6, 3.2e9), "ten billion edges": (400e6, 10e9)}
HOSTS = (1, 4, 16, 64, 256)
# Gigabytes a second each way: Ethernet of 10 and of 100 gigabits.
NETWORKS = {"10 Gbit/s": 1.25, "100 Gbit/s": 12.5}
# (times the measured rate, memory): itself, and an assumed server whose memory is 15 times as fast, as twelve
# channels of DDR5-4800 (461 GB/s) are beside the 26.5 GB/s that were measured, some of it lost.
MACHINES = {"measured": (1, 24 * 2**30), "server": (15, 768 * 2**30)}
_MEASURED_FEATURES, _MEASURED_CLASSES = 128, 40


def measured(path: Path) -> tuple[float, float]:
    """(gathered_gbps of the machine, cut rows of the greedy partition over those by chance)."""
    content = json.loads(path.read_text())
    cores = content["stamp"]["machine"]["cores"]
    hidden = content["hidden"]
    columns = cost.columns("gcn", _MEASURED_FEATURES, hidden, _MEASURED_CLASSES)
    counts = [int(count) for count in content["parts"] if count != "alone"]
    best = max(count for count in counts if count <= cores)
    row = next(r for r in content["rows"] if r["model"] == "gcn" and r["processes"] == str(best))
    edges = sum(content["parts"][str(best)]["edges"])
    nodes = sum(content["parts"][str(best)]["rows"])
    most = max(counts)
    by_chance = cost.cut_rows_by_chance(nodes, edges, most)
    share = content["parts"][str(most)]["cut_rows"][0] / by_chance
    return edges * columns * 4 / row["epoch_s"] / 1e9, share


def main() -> None:
    """Prints the tables of docs/explanation/internet-scale.md."""
    parser = command.parser(__doc__)
    parser.add_argument("--measured", type=Path, default=Path("benchmarks/results/distributed.json"))
    options = command.read(parser)
    rate, share = measured(options.measured)
    print(f"measured: {rate:.2f} GB/s gathered; greedy sends {share:.0%} of what chance sends\n")
    columns = cost.columns("gcn", FEATURES, HIDDEN, CLASSES)
    rows = []
    for graph, (nodes, edges) in GRAPHS.items():
        epoch = cost.Epoch(nodes, edges, FEATURES, HIDDEN, columns)
        for machine, (times, memory) in MACHINES.items():
            for network, gbps in NETWORKS.items():
                host = cost.HostRates(rate * times, gbps, memory)
                print(f"**{graph}, {machine} machines, {network}**\n")
                print(
                    "| machines | compute, s | network, s | epoch, s | sent, GB | memory each, GB | binds |"
                )
                print("| ---: | ---: | ---: | ---: | ---: | ---: | --- |")
                for hosts in HOSTS:
                    cut = cost.cut_rows_by_chance(nodes, edges, hosts) * share
                    found = cost.estimate(epoch, host, hosts, cut)
                    rows.append({"graph": graph, "machine": machine, "network": network, **asdict(found)})
                    print(
                        f"| {hosts} | {found.compute_s:.3g} | {found.network_s:.3g} | {found.epoch_s:.3g} | "
                        f"{found.sent_bytes / 1e9:.0f} | {found.memory_bytes / 1e9:.1f} | {found.binds} |"
                    )
                print()
    command.write(options, "estimate scale", {"gathered_gbps": rate, "share": share, "rows": rows})


if __name__ == "__main__":
    main()
