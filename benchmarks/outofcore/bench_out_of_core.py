"""Sums over graphs and features that are three times the memory of the process, beside the disk itself.

    python -m benchmarks.outofcore.bench_out_of_core --folder FOLDER [--nodes 12000000] [--degree 8]
        [--width 128] [--share 3.0] [--json FILE]

The graph has random sources, so that no order of the rows spares a read. Features are stored by columns
(Fortran order). The process that aggregates is put into a control group with a third of the bytes of graph
and features, libraries and page cache included, where control groups can be made; elsewhere its data segment
is limited, beside what its libraries take. The page cache is emptied of the files before each step. The
disk's own times are those of reading graph and features once, in order, through the page cache or past it
(O_DIRECT), whichever is faster, and of writing as many bytes as the result has. Sampled rows of the result
are checked. The folder needs room for features and result, twice ``nodes * width * 4`` bytes.

A virtual machine may have lent its free memory to others, and then waits for every page that it touches for
the first time. So there are two ways, in turns: in memory as the system gives it (``seconds``), and in a
process that has touched as much as a panel takes before the clock starts (``seconds_touched_before``).
Figures are medians of the rounds.

There are two cases. "square": every node has a result, as large as the features, so that writing it is most
of the work. "few destinations": results for a tenth of the nodes, as where only labelled ones matter, from
the features of all, so that reading is.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import onehop
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore import disk, inputs, limits

CHECKED = 2_000
# Of what the process is allowed: about what a panel takes.
TOUCHED = 0.4
# Destinations of each case, as a part of the nodes.
CASES = {"square": 1.0, "few destinations": 0.1}


def prepare(options: Options, case: str) -> list[Path]:
    """Writes graph and features where they are not there yet; the files."""
    folder, destinations = limits.folder_of(options), int(options.nodes * CASES[case])
    graph = inputs.random_graph(folder, options.nodes, destinations, options.degree)
    x = inputs.features(folder, options.nodes, options.width)
    return [graph / "rowptr.npy", graph / "col.npy", x]


def aggregated(order: Row) -> Row:
    """The work of the limited process."""
    limits.limit_data(order["limit_data"])
    if order["touch"]:
        disk.memory(order["touch"], large_pages=True)
    begin = time.perf_counter()
    onehop.aggregate(onehop.Graph.open(order["graph"]), order["x"], out=order["out"])
    return {"seconds": time.perf_counter() - begin, **limits.counted()}


def check(graph: Path, x: Path, out: Path) -> float:
    """The largest error of sampled rows, against float64."""
    g = onehop.Graph.open(graph)
    features, result = np.load(x, mmap_mode="r"), np.load(out, mmap_mode="r")
    rows = np.random.default_rng(2).integers(0, g.num_dst, CHECKED)
    rowptr, col = g.rowptr, g.col
    worst = 0.0
    columns = np.random.default_rng(3).integers(0, features.shape[1], 4)
    for column in columns:
        whole = np.array(features[:, column])
        for row in rows:
            exact = whole[col[rowptr[row] : rowptr[row + 1]]].sum(dtype=np.float64)
            worst = max(worst, abs(float(result[row, column]) - exact))
    return worst


def measured(name: str, options: Options) -> Row:
    """One case: the disk's own times, then the aggregation's."""
    files = prepare(options, name)
    destinations = int(options.nodes * CASES[name])
    input_bytes = sum(file.stat().st_size for file in files)
    limit = int(input_bytes / options.share)
    out = options.folder / "out.npy"
    result_bytes = destinations * options.width * 4
    ways = {"buffered": disk.read_buffered(files), "direct": disk.read_direct(files)}
    reading = min(ways.values())
    writing = disk.write_once(out, result_bytes)
    disk.forget(files)
    touched = int(limit * TOUCHED)
    runs: list[Row] = []
    before: list[float] = []
    for touch in [0, touched] * options.rounds:
        order = {"graph": str(files[0].parent), "x": str(files[2]), "out": str(out), "touch": touch}
        said, how, peak = limits.run(aggregated, order, limit)
        disk.forget([*files, out])
        error = check(files[0].parent, files[2], out)
        disk.forget(files)
        out.unlink()
        if not error < 1e-4:
            raise SystemExit(f"the result is wrong: off by {error}")
        if touch:
            before.append(said["seconds"])
        else:
            runs.append({**said, "peak": peak})
    said = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
    peak = said["peak"]
    moved = said["read_bytes"] + said["write_bytes"]
    own = reading * said["read_bytes"] / input_bytes + writing * said["write_bytes"] / result_bytes
    return {
        "case": name,
        "destinations": destinations,
        "input_bytes": input_bytes,
        "result_bytes": result_bytes,
        "limit_bytes": limit,
        "limited_by": how,
        "peak_bytes": peak,
        "disk_read_s": reading,
        "disk_read_buffered_s": ways["buffered"],
        "disk_read_direct_s": ways["direct"],
        "disk_write_s": writing,
        "disk_read_gbps": input_bytes / reading / 1e9,
        "disk_write_gbps": result_bytes / writing / 1e9,
        "seconds": said["seconds"],
        "seconds_of_all": [run["seconds"] for run in runs],
        "touched_bytes": touched,
        "seconds_touched_before": statistics.median(before),
        "read_bytes": said["read_bytes"],
        "write_bytes": said["write_bytes"],
        "gbps": moved / said["seconds"] / 1e9,
        "over_reading_once": said["seconds"] / reading,
        "over_reading_once_touched_before": statistics.median(before) / reading,
        "over_reading_and_writing_once": said["seconds"] / (reading + writing),
        "over_the_disk_for_the_bytes_moved": said["seconds"] / own,
        "largest_error": error,
    }


def rows(options: Options) -> Iterator[Row]:
    """Prepares, and measures every case; or prepares alone."""
    for name in CASES:
        prepare(options, name)
    if not options.prepare:
        yield from (measured(name, options) for name in CASES)


BENCHMARK = Benchmark(
    "bench out of core",
    rows,
    "case; s | seconds | {:.1f}; touched before, s | seconds_touched_before | {:.1f}; "
    "disk reads, s | disk_read_s | {:.1f}; disk writes, s | disk_write_s | {:.1f}; "
    "over both | over_reading_and_writing_once | x; "
    "over its bytes | over_the_disk_for_the_bytes_moved | x; "
    "peak, MiB | peak_bytes | MiB; largest error | largest_error | {:.0e}; limited by | limited_by",
    {
        "folder": limits.FOLDER,
        "nodes": 12_000_000,
        "degree": 8,
        "width": 128,
        "share": 3.0,
        "prepare": Option(False, "write graphs and features, and stop"),
    },
    key="cases",
    rounds=3,
    threads=False,
    kept=("nodes", "degree", "width", "share"),
    # The square case's figures are at the top as well.
    more=lambda options, rows: rows[0] if rows else {},
)

if __name__ == "__main__":
    BENCHMARK.main()
