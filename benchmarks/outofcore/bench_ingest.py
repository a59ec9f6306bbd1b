"""``onehop ingest`` of random edges, beside DuckDB's own sort of the same file and beside the disk.

    python -m benchmarks.outofcore.bench_ingest --folder FOLDER [--edges 50000000] [--memory 2147483648]
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

import math
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import onehop
from benchmarks import columns, harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore import disk, limits
from onehop.bench.memory import peak_bytes

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


def sort(order: Row) -> Row:
    """DuckDB alone, in a process of its own."""
    import duckdb

    begin, out = time.perf_counter(), order["out"]
    settings = {"threads": order["threads"], "memory_limit": f"{order['memory']}B"}
    connection = duckdb.connect(config={**settings, "temp_directory": f"{out}.spilled"})
    sorting = f"COPY (FROM '{order['file']}' ORDER BY target) TO '{out}' (FORMAT parquet)"
    connection.execute(sorting).fetchall()
    return {"seconds": time.perf_counter() - begin, "peak_bytes": peak_bytes()}


def ingest(order: Row) -> Row:
    """``onehop.ingest``, in a process of its own."""
    torch.set_num_threads(order["threads"])
    begin = time.perf_counter()
    onehop.ingest(order["file"], order["out"], nodes=order["nodes"], memory=order["memory"])
    return {"seconds": time.perf_counter() - begin, "peak_bytes": peak_bytes()}


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


def measured(case: str, options: Options) -> Row:
    """One case."""
    file = prepare(options.folder, case, options.edges)
    graph, table = options.folder / f"ingested-{case}", options.folder / f"sorted-{case}.parquet"
    order = {"file": str(file), "threads": options.threads, "memory": options.memory}
    order["nodes"] = options.edges // DEGREE if case == "numbers" else None
    seconds: dict[str, list[float]] = {"ingest": [], "sort": [], "disk": []}
    peaks = []
    for _ in range(options.rounds):
        for function, out in ((ingest, graph), (sort, table)):
            disk.forget([file])
            shutil.rmtree(out, ignore_errors=True)  # of a run that was interrupted
            said = harness.apart(function, {**order, "out": str(out)})
            seconds[function.__name__].append(said["seconds"])
            if function is ingest:
                peaks.append(said["peak_bytes"])
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


def rows(options: Options) -> Iterator[Row]:
    """Measures every case."""
    limits.folder_of(options)
    for case in options.cases:
        yield measured(case, options)


BENCHMARK = Benchmark(
    __doc__,
    "bench ingest",
    rows,
    columns.of(
        "case; edges; ingest, s | seconds/ingest | {:.1f}; sort, s | seconds/sort | {:.1f}; "
        "disk, s | seconds/disk | {:.1f}; over the sort | over_the_sort | x; "
        "over the disk | over_the_disk | x; peak, MiB | peak_bytes | MiB; extended to | extended_to; "
        "ingest, s | extended_seconds/ingest | {0[0]:.0f} to {0[1]:.0f}; "
        "sort, s | extended_seconds/sort | {0[0]:.0f} to {0[1]:.0f}"
    ),
    {
        "folder": limits.FOLDER,
        "edges": 50_000_000,
        "memory": 2 << 30,
        "to": 1_000_000_000,
        "cases": Option(CASES, known=CASES),
    },
    key="cases",
    rounds=1,
)

if __name__ == "__main__":
    BENCHMARK.main()
