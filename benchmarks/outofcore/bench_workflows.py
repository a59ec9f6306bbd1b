"""Three hops of SGC, and the inference of a GCN layer by layer, from disk to disk, beside the disk itself.

    python -m benchmarks.outofcore.bench_workflows --folder FOLDER [--nodes 6000000] [--degree 8]
        [--width 128] [--hidden 64] [--classes 40] [--share 3.0] [--cases sgc gcn]

"sgc" is ``onehop.hops(graph, x, 3, out)``; "gcn" is ``onehop.infer`` of PyG's unchanged ``GCN`` with two
layers. Sources of edges are drawn at random, so that no order of the rows spares a read. The process that
works is put into a control group with a share of the bytes of graph and features as its memory, page cache
included, where control groups can be made; elsewhere its data segment alone is limited, and the result says
so. The page cache is emptied of the inputs before each run.

The disk's time is that of reading and writing, in order, each file once by whoever needs it: the features
or the last hop's result, and the graph, for each hop or layer, and each hop's or layer's results. How often a
file is read again, because a panel of columns alone fits into memory, is up to the program, and so is its
copy of the graph with loops: neither counts. The rates are measured in each round before and after the run,
with a file as large as the features, past the page cache or through it, whichever is faster, and until it is
on the disk; a ratio is that of one round, and of these the median counts. The clock starts when libraries
are imported. Beside it stands the disk's time for the bytes that the system says the process has moved.

The results are compared with those of the same model of PyG in memory, of which they must not differ by more
than rounding: ``--tolerance`` of the largest entry. The folder needs room for five times the features.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GCN, SGConv

import onehop
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore import disk, inputs, limits

CASES = ("sgc", "gcn")
HOPS = 3
TARGET = 2.0
ROWS = 1 << 16


def model_of(case: str, options: Options) -> torch.nn.Module:
    """The model; of SGC the sums alone, since its weights are those of one linear layer behind them."""
    torch.manual_seed(0)
    if case == "gcn":
        return GCN(options.width, options.hidden, num_layers=2, out_channels=options.classes).eval()
    layer = SGConv(options.width, options.width, K=HOPS, bias=False)
    torch.nn.init.eye_(layer.lin.weight)
    return layer


def from_disk(order: Row) -> Row:
    """The work of the limited process."""
    options = Options(**order)
    torch.set_num_threads(options.threads)
    limits.limit_data(options.limit_data)
    graph, model = onehop.Graph.open(options.graph), model_of(options.case, options)
    begin = time.perf_counter()
    if options.case == "sgc":
        onehop.hops(graph, options.x, HOPS, options.out)
    else:
        onehop.infer(model, graph, options.x, options.out)
    return {"seconds": time.perf_counter() - begin, **limits.counted()}


def in_memory(order: Row) -> Row:
    """The work of the process without a limit."""
    options = Options(**order)
    torch.set_num_threads(options.threads)
    x = torch.from_numpy(np.load(options.x))
    edge_index = onehop.Graph.open(options.graph).load().edge_index()
    model = model_of(options.case, options)
    with torch.no_grad(), onehop.patch():
        begin = time.perf_counter()
        out = model(x, edge_index)
        seconds = time.perf_counter() - begin
    np.save(options.out, out.numpy())
    return {"seconds": seconds}


def difference(found: Path, expected: Path) -> float:
    """The largest difference of two results over the largest entry."""
    a, b = np.load(found, mmap_mode="r"), np.load(expected, mmap_mode="r")
    if a.shape != b.shape:
        raise SystemExit(f"the result has shape {a.shape}, and in memory {b.shape}")
    worst = largest = 0.0
    for row in range(0, len(a), ROWS):
        ours, exact = np.asarray(a[row : row + ROWS]), np.asarray(b[row : row + ROWS])
        worst = max(worst, float(np.abs(ours - exact).max()))
        largest = max(largest, float(np.abs(exact).max()))
    return worst / largest


def least_bytes(case: str, graph_bytes: int, options: Options) -> tuple[int, int]:
    """Bytes to read and to write if each step reads its files once, and each file is written once."""
    column = 4 * options.nodes
    if case == "sgc":
        return HOPS * (graph_bytes + options.width * column), HOPS * options.width * column
    products = (options.hidden + options.classes) * column
    # Each layer writes its products with the weights, reads them again, and writes their sums, which
    # the next layer reads; the sums of the last one are the result.
    read = 2 * graph_bytes + options.width * column + products + options.hidden * column
    return read, 2 * products


def rates(x: Path, beside: Path) -> tuple[float, float]:
    """Bytes a second that the disk reads and writes now."""
    size = x.stat().st_size
    reading = min(disk.read_buffered([x]), disk.read_direct([x]))
    return size / reading, size / disk.write_once(beside, size)


def measured(case: str, graph: Path, x: Path, options: Options) -> Row:
    """One case."""
    files = [graph / "rowptr.npy", graph / "col.npy", x]
    graph_bytes = sum(file.stat().st_size for file in files[:2])
    limit = int((graph_bytes + x.stat().st_size) / options.share)
    out, exact = options.folder / f"{case}.npy", options.folder / f"{case}-memory.npy"
    order = {key: getattr(options, key) for key in ("threads", "nodes", "width", "hidden", "classes")}
    order |= {"case": case, "graph": str(graph), "x": str(x)}
    alone = limits.run(in_memory, {**order, "out": str(exact)}, disk.machine_bytes()).result
    least_read, least_written = least_bytes(case, graph_bytes, options)
    runs: list[Row] = []
    for _ in range(options.rounds):
        before = rates(x, out)
        disk.forget(files)
        said, how, peak = limits.run(from_disk, {**order, "out": str(out)}, limit)
        disk.forget([out])
        found = difference(out, exact)
        out.unlink()
        if not found <= options.tolerance:
            raise SystemExit(f"{case}: the result differs from that in memory by {found:.1e}")
        read_rate, write_rate = (sum(each) / 2 for each in zip(before, rates(x, out), strict=True))
        run = {**said, "peak_bytes": peak, "difference": found}
        least = least_read / read_rate + least_written / write_rate
        runs.append(
            {
                **run,
                "disk_read_gbps": read_rate / 1e9,
                "disk_write_gbps": write_rate / 1e9,
                "least_disk_s": least,
                "over_the_disk": run["seconds"] / least,
                "moved_disk_s": run["read_bytes"] / read_rate + run["write_bytes"] / write_rate,
            }
        )
    exact.unlink()
    run = sorted(runs, key=lambda each: each["over_the_disk"])[len(runs) // 2]
    over = run["over_the_disk"]
    return {
        "case": case,
        "limit_bytes": limit,
        "limited_by": how,
        "memory_seconds": alone["seconds"],
        **run,
        "least_read_bytes": least_read,
        "least_write_bytes": least_written,
        "target": TARGET,
        "reached": over <= TARGET,
        "runs": runs,
    }


def rows(options: Options) -> Iterator[Row]:
    """Prepares, and measures every case."""
    folder = limits.folder_of(options)
    graph = inputs.random_graph(folder, options.nodes, options.nodes, options.degree)
    x = inputs.features(folder, options.nodes, options.width)
    for case in options.cases:
        yield measured(case, graph, x, options)


BENCHMARK = Benchmark(
    "bench workflows out of core",
    rows,
    "case; s | seconds | {:.1f}; in memory, s | memory_seconds | {:.1f}; "
    "disk, s | least_disk_s | {:.1f}; over the disk | over_the_disk | x; "
    "at most | target | x; reached | reached | yes or no; "
    "for its bytes, s | moved_disk_s | {:.1f}; difference | difference | {:.0e}; limited by | limited_by",
    {
        "folder": limits.FOLDER,
        "nodes": 6_000_000,
        "degree": 8,
        "width": 128,
        "hidden": 64,
        "classes": 40,
        "share": 3.0,
        "tolerance": 1e-5,
        "cases": Option(CASES, known=CASES),
    },
    key="cases",
    rounds=3,
    kept=("nodes", "degree", "width", "hidden", "classes"),
)

if __name__ == "__main__":
    BENCHMARK.main()
