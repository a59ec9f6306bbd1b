"""Sampled training with features of three times the memory of the process, beside features in memory.

    python -m benchmarks.outofcore.bench_training --folder FOLDER [--nodes 12000000] [--degree 8]
        [--width 128] [--share 3.0] [--workers 4] [--batches 30] [--cases uniform hubs hubs-first]

GraphSAGE of two layers on batches of ``onehop.loader``: 1,024 seeds, fan-out 15 and 10, made ahead by
``--workers`` threads. "memory" has the features in a tensor and as much memory as the machine; "map" has them
in a memory-mapped file, and a share of their size as its memory, libraries, graph and page cache included,
where control groups can be made; elsewhere its data segment alone is limited, and the line says so. Both
draw the same batches: their rows must be the same to the bit, and their losses but for rounding, as the
library of a product is chosen by its time. Some batches before them are not counted, so
that the page cache holds what it can. Figures are medians of the rounds, whose ways take turns.

Beside them stands what the disk allows: the bytes that a batch reads, at the rate at which the disk reads
pages at random, 64 at a time. Where that takes longer than a batch in memory, no loader reaches the target.

Sources of edges are drawn alike ("uniform"), or as a power law, where 1 % of the nodes have 32 % of the
edges; such hubs lie anywhere in the file ("hubs"), or before all others ("hubs-first"), where the system
keeps their pages. The folder needs room for the features and, for each case, the graph.
"""

import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import onehop
from benchmarks import columns
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore import disk, inputs, limits
from onehop.bench.plain_models import SAGE

CASES = ("uniform", "hubs", "hubs-first")
SEEDS, FAN_OUT, HIDDEN, CLASSES = 1024, [15, 10], 256, 40
# The share of a rank's draws falls with this power of the rank: the first 1 % have 0.01^(1/4) = 32 % of all.
POWER = 4
TARGET = 1.3
# Relative difference of losses that rounding explains, after some tens of steps.
ROUNDING = 1e-3
# Requests that wait for the disk together, and as many reads as give its rate.
WAITING, READS = 64, 40_000


def draw_of(case: str, nodes: int) -> inputs.Draw:
    """What draws the sources of a case."""
    # Multiplied by a number without a common divisor, ranks become numbers in no order.
    factor = next(each for each in range(int(0.618 * nodes), nodes) if math.gcd(each, nodes) == 1)

    def draw(begin: int, count: int, generator: torch.Generator) -> torch.Tensor:
        drawn = torch.rand(count, generator=generator, dtype=torch.float64)
        col = ((drawn if case == "uniform" else drawn**POWER) * nodes).long().clamp(max=nodes - 1)
        return col * factor % nodes if case == "hubs" else col

    return draw


def prepare(options: Options) -> tuple[Path, dict[str, Path]]:
    """Writes features and graphs where they are not there yet; the files."""
    folder, nodes, degree = limits.folder_of(options), options.nodes, options.degree
    x = inputs.features(folder, nodes, options.width, by_columns=False)
    graphs = {
        case: inputs.graph(
            folder / f"graph-{case}-{nodes}-{degree}",
            nodes,
            inputs.blocks(nodes, degree, draw_of(case, nodes)),
        )
        for case in options.cases
    }
    return x, graphs


def train(order: Row) -> Row:
    """The work of the process that trains: seconds, losses, and bytes read, of the batches that count."""
    options = Options(**order)
    torch.set_num_threads(options.threads)
    limits.limit_data(options.limit_data)
    features: Any = options.x if options.way == "map" else torch.from_numpy(np.load(options.x))
    graph = onehop.Graph.open(options.graph).load()
    nodes = graph.num_dst
    sampler = onehop.NeighborSampler(graph, FAN_OUT, seed=0)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (nodes,), generator=generator)
    count = SEEDS * (options.warm + options.batches)
    seeds = torch.randint(nodes, (count,), generator=generator)
    torch.manual_seed(0)
    model = SAGE(options.width, HIDDEN, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = onehop.loader(
        sampler,
        seeds,
        features={"x": features, "y": labels},
        batch_size=SEEDS,
        threads=options.workers,
        ahead=max(2, options.workers),
    )
    losses, checks, steps, begin, read = [], [], 0.0, 0.0, 0
    with onehop.patch():
        for number, batch in enumerate(loader):
            if number == options.warm:
                begin, steps, read = time.perf_counter(), 0.0, limits.counted()["read_bytes"]
            start = time.perf_counter()
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            steps += time.perf_counter() - start
            checks.append(int(batch.x.view(torch.int32).sum()))
    return {
        "seconds": (time.perf_counter() - begin) / options.batches,
        "step_seconds": steps / options.batches,
        "read_bytes": (limits.counted()["read_bytes"] - read) / options.batches,
        "nodes": batch.num_nodes,
        "losses": losses,
        "checks": checks,
    }


def measured(case: str, x: Path, graph: Path, options: Options) -> Row:
    """One case."""
    size = x.stat().st_size
    limit = int(size / options.share)
    order = {key: getattr(options, key) for key in ("width", "workers", "batches", "warm", "threads")}
    order |= {"x": str(x), "graph": str(graph)}
    runs: dict[str, list[Row]] = {"memory": [], "map": []}
    for _ in range(options.rounds):
        for way, found in runs.items():
            disk.forget([x, *graph.iterdir()])
            allowed = limit if way == "map" else disk.machine_bytes()
            said, how, peak = limits.run(train, {**order, "way": way}, allowed)
            found.append({**said, "limited_by": how, "peak_bytes": peak})
    every = [run for found in runs.values() for run in found]
    if any(run["checks"] != every[0]["checks"] for run in every):
        raise SystemExit(f"{case}: rows differ between features in memory and in a map")
    apart = np.ptp([run["losses"] for run in every], axis=0) / np.abs(every[0]["losses"])
    if apart.max() > ROUNDING:
        raise SystemExit(f"{case}: losses differ by {apart.max():.0e} between memory and map")
    disk.forget([x])
    rate = disk.random_rate(x, READS, WAITING)
    middle = {
        way: sorted(found, key=lambda run: run["seconds"])[len(found) // 2] for way, found in runs.items()
    }
    seconds = {way: statistics.median([run["seconds"] for run in found]) for way, found in runs.items()}
    ratio = seconds["map"] / seconds["memory"]
    disk_s = middle["map"]["read_bytes"] / rate
    # The disk reads while a batch is computed, at best.
    bound = max(disk_s, seconds["memory"]) / seconds["memory"]
    return {
        "case": case,
        "features_bytes": size,
        "limit_bytes": limit,
        "limited_by": middle["map"]["limited_by"],
        "peak_bytes": middle["map"]["peak_bytes"],
        "seconds": seconds,
        "seconds_of_all": {way: [run["seconds"] for run in found] for way, found in runs.items()},
        "step_seconds": {way: run["step_seconds"] for way, run in middle.items()},
        "ratio": ratio,
        "target": TARGET,
        "reached": ratio <= TARGET,
        "read_bytes_a_batch": middle["map"]["read_bytes"],
        "row_bytes_a_batch": middle["map"]["nodes"] * options.width * 4,
        "disk_random_bytes_per_s": rate,
        "disk_s_a_batch": disk_s,
        "least_ratio_of_the_disk": bound,
    }


def rows(options: Options) -> Iterator[Row]:
    """Prepares, and measures every case."""
    x, graphs = prepare(options)
    for case, graph in graphs.items():
        yield measured(case, x, graph, options)


BENCHMARK = Benchmark(
    __doc__,
    "bench training out of core",
    rows,
    columns.of(
        "case; memory, ms | seconds/memory | ms; map, ms | seconds/map | ms; ratio | ratio | x; "
        "at most | target | x; reached | reached | yes or no; read, MiB | read_bytes_a_batch | MiB; "
        "rows, MiB | row_bytes_a_batch | MiB; disk, ms | disk_s_a_batch | ms; "
        "least | least_ratio_of_the_disk | x; limited by | limited_by"
    ),
    {
        "folder": limits.FOLDER,
        "nodes": 12_000_000,
        "degree": 8,
        "width": 128,
        "share": 3.0,
        "workers": 4,
        "batches": 30,
        "warm": Option(20, "batches before those that are counted"),
        "cases": Option(CASES, known=CASES),
    },
    key="cases",
    rounds=3,
    kept=("nodes", "degree", "width", "share", "workers", "batches"),
)

if __name__ == "__main__":
    BENCHMARK.main()
