"""Sums over graphs and features that are three times the memory of the process, beside the disk itself.

    python benchmarks/outofcore/bench_out_of_core.py --folder FOLDER [--nodes 12000000] [--degree 8]
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

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import disk
import inputs
import limits
import numpy as np

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line

CHECKED = 2_000
# Of what the process is allowed: about what a panel takes.
TOUCHED = 0.4
# Destinations of each case, as a part of the nodes.
CASES = {"square": 1.0, "few destinations": 0.1}


def prepare(folder: Path, nodes: int, destinations: int, degree: int, width: int) -> list[Path]:
    """Writes graph and features where they are not there yet; the files."""
    graph = inputs.graph(folder, nodes, destinations, degree)
    return [graph / "rowptr.npy", graph / "col.npy", inputs.features(folder, nodes, width, by_columns=True)]


def child(options: argparse.Namespace) -> None:
    """The limited process."""
    if options.limit_data:
        limits.limit_data(options.limit_data)
    if options.touch:
        disk.memory(options.touch, large_pages=True)
    begin = time.perf_counter()
    onehop.aggregate(onehop.Graph.open(options.graph), options.x, out=options.out)
    seconds = time.perf_counter() - begin
    used = Path("/proc/self/io").read_text().splitlines()
    io = {line.split(":")[0]: int(line.split()[1]) for line in used}
    print(
        json.dumps(
            {
                "seconds": seconds,
                "read_bytes": io["read_bytes"],
                "write_bytes": io["write_bytes"],
            }
        )
    )


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


def measured(name: str, files: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """One case: the disk's own times, then the aggregation's, printed."""
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
    runs: list[dict[str, Any]] = []
    before: list[float] = []
    for touch in [0, touched] * options.rounds:
        program = [sys.executable, __file__, "--child", "--graph", str(files[0].parent), "--x", str(files[2])]
        printed, how, peak = limits.run([*program, "--out", str(out), "--touch", str(touch)], limit)
        said = json.loads(printed)
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
    results = {
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
    for key, value in results.items():
        print(f"{key:36} {value:,.3f}" if isinstance(value, float) else f"{key:36} {value}", flush=True)
    return results


def main() -> None:
    """Prepares, measures, checks, prints, writes."""
    parser = command.parser(__doc__, rounds=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--nodes", type=int, default=12_000_000)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--share", type=float, default=3.0)
    parser.add_argument("--prepare", action="store_true", help="write graphs and features, and stop")
    for name in ("--graph", "--x", "--out"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--touch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--limit-data", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child:
        child(options)
        return
    if options.folder is None:
        parser.error("--folder is needed: a place with room on the disk to be measured")
    files = {
        name: prepare(options.folder, options.nodes, int(options.nodes * part), options.degree, options.width)
        for name, part in CASES.items()
    }
    if options.prepare:
        return
    print(machine_line())
    cases = [measured(name, files[name], options) for name in CASES]
    chosen = {name: getattr(options, name) for name in ("nodes", "degree", "width", "share")}
    # The square case's figures stand at the top as well, where they always stood.
    command.write(options, "bench out of core", {**chosen, **cases[0], "cases": cases})


if __name__ == "__main__":
    main()
