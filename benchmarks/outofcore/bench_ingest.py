"""``onehop ingest`` of random edges, beside DuckDB's own sort of the same file and beside the disk.

    python benchmarks/outofcore/bench_ingest.py --folder FOLDER [--edges 50000000] [--memory 2147483648]
        [--cases numbers ids]

The file is Parquet with two columns of 64 bits. "numbers": the ids are node numbers already; "ids": they have
gaps, so that they are collected, numbered and looked up. All work with the same memory and threads, each in a
process of its own, after the page cache was emptied of the file:

    ingest  the graph on disk: rows in order, the file's order within a row, sources in 32 bits
    sort    DuckDB alone: the file, sorted by destination, as another Parquet file
    disk    the file read in order, and as many bytes as the graph has written

The graph is checked against the file: the number of edges of every node, and two sums over all edges, which
change if an edge has another source or destination. ``--to`` edges are what the times are extended to:
in proportion, and with the logarithm of a sort. Both assume the same disk, memory in the same ratio to the
edges, and no more passes over them. Plan for 90 bytes of room an edge.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import disk
import numpy as np

import onehop
from onehop.bench import command
from onehop.bench.stamp import machine_line

CASES = ("numbers", "ids")
# Ids are numbers times this, beyond 32 bits; edges a node.
GAP, DEGREE = 1_000_003, 16
BLOCK = 1 << 22


def prepare(folder: Path, case: str, edges: int) -> Path:
    """Writes the edges where they are not there yet; their file."""
    import duckdb

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case}-{edges}.parquet"
    if not path.exists():
        beside, nodes = path.with_suffix(".tmp"), edges // DEGREE
        factor = GAP if case == "ids" else 1
        # A hash of the row's number: the same edges wherever it runs.
        ends = [
            f"CAST(hash(range * 2 + {which}) % {nodes} * {factor} AS BIGINT) AS {name}"
            for which, name in enumerate(("source", "target"))
        ]
        duckdb.execute(f"COPY (SELECT {', '.join(ends)} FROM range({edges})) TO '{beside}' (FORMAT parquet)")
        beside.rename(path)
    return path


def child(options: argparse.Namespace) -> None:
    """One process's work."""
    out = options.out
    begin = time.perf_counter()
    if options.child == "sort":
        import duckdb

        settings = {"threads": options.threads, "memory_limit": f"{options.memory}B"}
        connection = duckdb.connect(config={**settings, "temp_directory": f"{out}.spilled"})
        connection.execute(
            f"COPY (FROM '{options.file}' ORDER BY target) TO '{out}' (FORMAT parquet)"
        ).fetchall()
    else:
        nodes = options.nodes or None
        onehop.ingest(options.file, out, nodes=nodes, memory=options.memory)
    seconds = time.perf_counter() - begin
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


def check(file: Path, folder: Path, case: str) -> None:
    """Ends the program unless the graph has the file's edges."""
    import duckdb

    graph = onehop.Graph.open(folder)
    rowptr, col = graph.rowptr, graph.col
    of = {"source": "source", "target": "target"}
    tables = f"'{file}'"
    if case == "ids":
        ids = f"'{folder / 'ids.parquet'}'"
        tables += f" JOIN {ids} s ON source = s.id JOIN {ids} t ON target = t.id"
        of = {"source": "s.number", "target": "t.number"}
    source, target = of["source"], of["target"]
    product = f"sum(CAST({source} AS HUGEINT) * ({target} % 1009))"
    wanted = duckdb.sql(
        f"SELECT count(*), sum({target} % 1009), sum({source}), {product} FROM {tables}"
    ).fetchall()[0]
    found = [0, 0, 0, 0]
    # Rows at a time, of about as many edges each.
    step = max(BLOCK // DEGREE, 1)
    for begin in range(0, graph.num_dst, step):
        bounds = rowptr[begin : begin + step + 1].astype(np.int64)
        part = col[bounds[0] : bounds[-1]].astype(np.int64)
        rows = np.arange(begin, begin + len(bounds) - 1) % 1009
        row = np.repeat(rows, np.diff(bounds))
        for place, value in enumerate((len(part), row.sum(), part.sum(), (part * row).sum())):
            found[place] += int(value)
    if found != [int(each) for each in wanted]:
        raise SystemExit(f"{case}: the graph is not that of the file: sums {found}, expected {wanted}")


def measured(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """One case, printed."""
    file = prepare(options.folder, case, options.edges)
    graph, table = options.folder / f"ingested-{case}", options.folder / f"sorted-{case}.parquet"
    program = [sys.executable, __file__, "--file", str(file), "--threads", str(options.threads)]
    program += ["--memory", str(options.memory)]
    if case == "numbers":
        program += ["--nodes", str(options.edges // DEGREE)]
    seconds: dict[str, list[float]] = {"ingest": [], "sort": [], "disk": []}
    peaks = []
    for _ in range(options.rounds):
        for way, out in (("ingest", graph), ("sort", table)):
            disk.forget([file])
            shutil.rmtree(out, ignore_errors=True)  # of a run that was interrupted
            said = subprocess.run(
                [*program, "--child", way, "--out", str(out)], check=True, stdout=subprocess.PIPE
            ).stdout
            seconds[way].append(json.loads(said)["seconds"])
            if way == "ingest":
                peaks.append(json.loads(said)["peak_bytes"])
        check(file, graph, case)
        size = sum(each.stat().st_size for each in graph.iterdir())
        shutil.rmtree(graph)
        table.unlink()
        reading = min(disk.read_buffered([file]), disk.read_direct([file]))
        seconds["disk"].append(reading + disk.write_once(options.folder / "written", size))
    took = {way: statistics.median(each) for way, each in seconds.items()}
    times = options.to / options.edges
    longer = times * math.log(options.to) / math.log(options.edges)
    extended = {way: [each * times, each * longer] for way, each in took.items() if way != "disk"}
    size_gb, minutes = file.stat().st_size / 1e9, {way: [s / 60 for s in extended[way]] for way in extended}
    print(
        f"{case}: {options.edges:,} edges, {size_gb:.1f} GB: ingest {took['ingest']:.1f} s, "
        f"sort {took['sort']:.1f} s, disk {took['disk']:.1f} s: {took['ingest'] / took['sort']:.2f}x the "
        f"sort; {1e9 * took['ingest'] / options.edges:.0f} ns an edge; peak {max(peaks) / 1e9:.2f} GB\n"
        f"    {options.to:,} edges: ingest {minutes['ingest'][0]:.0f} to {minutes['ingest'][1]:.0f} min, "
        f"sort {minutes['sort'][0]:.0f} to {minutes['sort'][1]:.0f} min",
        flush=True,
    )
    return {
        "case": case,
        "edges": options.edges,
        "file_bytes": file.stat().st_size,
        "graph_bytes": size,
        "memory_bytes": options.memory,
        "peak_bytes": max(peaks),
        "seconds": took,
        "seconds_of_all": seconds,
        "over_the_sort": took["ingest"] / took["sort"],
        "over_the_disk": took["ingest"] / took["disk"],
        "extended_to": options.to,
        "extended_seconds": extended,
    }


def main() -> None:
    """Measures, checks, prints, writes."""
    parser = command.parser(__doc__, rounds=1, threads=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--edges", type=int, default=50_000_000)
    parser.add_argument("--memory", type=int, default=2 << 30)
    parser.add_argument("--to", type=int, default=1_000_000_000)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    for name in ("--file", "--out", "--child"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=0, help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child is not None:
        child(options)
        return
    if options.folder is None:
        parser.error("--folder is needed: a place with room on the disk to be measured")
    print(machine_line())
    cases = [measured(case, options) for case in options.cases]
    command.write(options, "bench ingest", {"cases": cases})


if __name__ == "__main__":
    main()
