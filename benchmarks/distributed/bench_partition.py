"""How well nodes are divided, and what dividing a graph on disk takes.

    python -m benchmarks.distributed.bench_partition [--graphs twin:arxiv-communities twin:arxiv]
        [--parts 4 16 64] [--folder FOLDER] [--nodes 4000000] [--degree 12] [--json FILE]

For every graph, number of parts and method: edges that are cut, rows that an exchange sends, over the rows
that there are and over what the formula for chance says, the most rows and the most edges of a part over the
mean, seconds. "chance" draws every node's part.

With ``--folder``, a graph of so many nodes and edges is stored there, and for each number of parts divided
and saved by a process of its own: the same figures, seconds in all and of the partition, the most memory of
its own that the process had, its libraries included, and the bytes of the files. Nine tenths of the sources
have numbers near that of their row, so there is something for a partition to find. Each edge needs 45 bytes
of room; all is deleted afterwards.
"""

import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.outofcore.inputs import Draw, blocks
from onehop import distributed
from onehop.bench.memory import status_bytes
from onehop.bench.sources import structure
from onehop.distributed import cost, files
from onehop.distributed.division import ListDivision
from onehop.distributed.loads import imbalance
from onehop.graph import metis, stored

METHODS = ("metis", "greedy", "streamed", "chance")


def divided(graph: onehop.Graph, parts: int, method: str) -> Row:
    """One partition's figures."""
    start = time.perf_counter()
    if method == "chance":
        owner = torch.randint(0, parts, (graph.num_dst,), generator=torch.Generator().manual_seed(0)).int()
    else:
        owner = distributed.partition(graph, parts, method)
    seconds = time.perf_counter() - start
    part = ListDivision(graph.edge_index(), owner, parts).part(0)
    rows, edges = imbalance(graph, owner, parts)
    return {
        "parts": parts,
        "method": method,
        "cut_share": part.cut_edges / graph.num_edges,
        "cut_rows": part.cut_rows,
        "halo_share": part.cut_rows / graph.num_dst,
        "row_imbalance": rows,
        "edge_imbalance": edges,
        "by_chance_share": part.cut_rows / cost.cut_rows_by_chance(graph.num_dst, graph.num_edges, parts),
        "seconds": seconds,
    }


def near(nodes: int, degree: int) -> Draw:
    """Sources with near numbers, but for a tenth that have any."""

    def draw(begin: int, count: int, generator: torch.Generator) -> torch.Tensor:
        rows = begin + torch.arange(count) // degree
        close = (rows + torch.randint(-5000, 5000, rows.shape, generator=generator)) % nodes
        far = torch.randint(0, nodes, rows.shape, generator=generator)
        return torch.where(torch.rand(rows.shape, generator=generator) < 0.1, far, close)

    return draw


def divide(order: Row) -> Row:
    """The work of the process that divides: seconds, its peak of anonymous memory, and what it found."""
    folder, parts = Path(order["folder"]), order["parts"]
    peak, done, partitioning = [0], threading.Event(), [0.0]
    partition = files.partition

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], status_bytes("RssAnon"))

    def timed(*arguments: object) -> torch.Tensor:
        begin = time.perf_counter()
        owner = partition(*arguments)  # type: ignore[arg-type]
        partitioning[0] = time.perf_counter() - begin
        return owner

    files.partition = timed
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    meta = distributed.save(folder / "parts", onehop.Graph.open(folder / "graph"), parts=parts)
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return {
        "parts": parts,
        "seconds": seconds,
        "partition_seconds": partitioning[0],
        "peak_bytes": peak[0],
        "cut_share": meta["cut_edges"] / meta["num_edges"],
        "cut_rows": meta["cut_rows"],
        "halo_share": meta["cut_rows"] / meta["num_nodes"],
        "by_chance_share": meta["cut_rows"]
        / cost.cut_rows_by_chance(meta["num_nodes"], meta["num_edges"], parts),
    }


def saved(folder: Path) -> Row:
    """What the files of a divided graph say: balance, and bytes."""
    parts = sorted(folder.glob("part-*"))
    counts = {
        name: np.array([len(np.load(part / f"{name}.npy", mmap_mode="r")) for part in parts])
        for name in ("owned_nodes", "source", "halo_nodes")
    }
    rows, edges, halos = (counts[name] for name in ("owned_nodes", "source", "halo_nodes"))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "row_imbalance": rows.max() / rows.mean(),
        "edge_imbalance": edges.max() / edges.mean(),
        "largest_halo_share": float((halos / rows).max()),
        "file_bytes": size,
        "file_bytes_an_edge": size / edges.sum(),
    }


def rows_on_disk(options: Options) -> Iterator[Row]:
    """Stores a graph, has it divided for each number of parts, and deletes all."""
    inside, nodes, degree = options.folder / "bench-partition", options.nodes, options.degree
    inside.mkdir(parents=True)
    try:
        stored.write(inside / "graph", nodes, blocks(nodes, degree, near(nodes, degree)))
        for count in options.parts:
            yield harness.apart(divide, {"folder": str(inside), "parts": count}) | saved(inside / "parts")
            shutil.rmtree(inside / "parts")
    finally:
        shutil.rmtree(inside)


def rows(options: Options) -> Iterator[Row]:
    """Measures every partition in memory, then those on disk."""
    for name in options.graphs:
        graph = structure(name).graph
        for parts, method in itertools.product(options.parts, METHODS):
            if method != "metis" or metis.installed():
                yield {"graph": name, **divided(graph, parts, method)}
    if options.folder is not None:
        for row in rows_on_disk(options):
            yield {"graph": "on disk", "method": "auto", **row}


def by_graph(options: Options, rows: list[Row]) -> Row:
    """The rows of each graph, and those on disk."""
    partitions: dict[str, list[Row]] = {}
    on_disk = None
    for row in rows:
        figures = {key: value for key, value in row.items() if key != "graph"}
        if row["graph"] != "on disk":
            partitions.setdefault(row["graph"], []).append(figures)
            continue
        edges = options.nodes * options.degree
        on_disk = on_disk or {
            "nodes": options.nodes, "edges": edges, "edge_index_bytes": 16 * edges, "method": "auto",
            "rows": [],
        }  # fmt: skip
        del figures["method"]
        on_disk["rows"].append(figures)
    return {"partitions": partitions, "on_disk": on_disk}


BENCHMARK = Benchmark(
    "bench partition",
    rows,
    "graph; parts; method; cut | cut_share | {:.1%}; halo | halo_share | {:.3f}; "
    "by chance | by_chance_share | {:.3f}; rows | row_imbalance | {:.3f}; "
    "edges | edge_imbalance | {:.3f}; s | seconds | {:.2f}; "
    "peak, MiB | peak_bytes | MiB; files, MiB | file_bytes | MiB",
    {
        "graphs": ("twin:arxiv-communities", "twin:arxiv"),
        "parts": (4, 16, 64),
        "folder": Option(None, "where a graph is stored and divided", kind=Path),
        "nodes": 4_000_000,
        "degree": 12,
    },
    key=None,
    threads=False,
    more=by_graph,
)

if __name__ == "__main__":
    BENCHMARK.main()
