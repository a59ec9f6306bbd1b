"""Time and traffic of graphs of billions of edges on many machines, from what was measured on one.

    python -m benchmarks.distributed.estimate_scale [--measured FILE] [--partitions FILE] [--json FILE]

The rate of computing is that of the run with most processes that have a core each, for all of its processes
together. The rows that an exchange sends are a share of those by chance: what the greedy method left on two
graphs, one with communities and one without, for the nearest number of parts that was measured. The model is
a GCN of two layers: 128 features, 256 hidden columns, 172 classes. The files are what bench_distributed.py
and bench_partition.py wrote.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness import Benchmark, Option, Options, Row
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


# Kinds of graph, by the twin on which partitions were measured.
KINDS = {"communities": "twin:arxiv-communities", "none": "twin:arxiv"}


def measured(path: Path) -> float:
    """The machine's gathered_gbps."""
    content = json.loads(path.read_text())
    cores = content["stamp"]["machine"]["cores"]
    hidden = content["hidden"]
    columns = cost.columns("gcn", _MEASURED_FEATURES, hidden, _MEASURED_CLASSES)
    counts = [int(count) for count in content["parts"] if count != "alone"]
    best = max(count for count in counts if count <= cores)
    row = next(r for r in content["rows"] if r["model"] == "gcn" and r["processes"] == str(best))
    edges = sum(content["parts"][str(best)]["edges"])
    return edges * columns * 4 / row["epoch_s"] / 1e9


def shares(path: Path) -> dict[str, dict[int, float]]:
    """For each kind of graph and number of parts: rows that the greedy method sends, over those by chance."""
    found = json.loads(path.read_text())["partitions"]
    return {
        kind: {row["parts"]: row["by_chance_share"] for row in found[twin] if row["method"] == "greedy"}
        for kind, twin in KINDS.items()
    }


def of_nearest(by_parts: dict[int, float], hosts: int) -> float:
    """The share of the nearest number of parts, by their ratio."""
    return by_parts[min(by_parts, key=lambda parts: max(parts / hosts, hosts / parts))]


def rows(options: Options) -> Iterator[Row]:
    """Estimates every graph, kind of graph, machine, network and number of machines."""
    rate, share = measured(options.measured), shares(options.partitions)
    options.noted |= {"gathered_gbps": rate, "shares": share}
    width = cost.columns("gcn", FEATURES, HIDDEN, CLASSES)
    for (graph, (nodes, edges)), (machine, (times, memory)), (network, gbps), hosts in itertools.product(
        GRAPHS.items(), MACHINES.items(), NETWORKS.items(), HOSTS
    ):
        epoch = cost.Epoch(nodes, edges, FEATURES, HIDDEN, width)
        host = cost.HostRates(rate * times, gbps, memory)
        by_chance = cost.cut_rows_by_chance(nodes, edges, hosts)
        for kind in KINDS:
            found = cost.estimate(epoch, host, hosts, by_chance * of_nearest(share[kind], hosts))
            yield {"graph": graph, "kind": kind, "machine": machine, "network": network, **asdict(found)}


BENCHMARK = Benchmark(
    "estimate scale",
    rows,
    "graph; kind; machine; network; machines | hosts | {}; compute, s | compute_s | {:.3g}; "
    "network, s | network_s | {:.3g}; sent, bytes | sent_bytes | {:.3g}; "
    "memory, bytes | memory_bytes | {:.3g}; binds",
    {
        "measured": Option(Path("benchmarks/results/distributed.json")),
        "partitions": Option(Path("benchmarks/results/partition.json")),
    },
    key="rows",
    threads=False,
)

if __name__ == "__main__":
    BENCHMARK.main()
