"""Node orders as the software rival of re-tiling: what they save, what they cost, and the machine's times.

    python -m benchmarks.machines.bench_ndp_orders [--scale 0.25] [--width 256] [--json FILE]
                                                      [--plot FILE]

Nodes are numbered anew before anything runs, then tiled by number; re-tiling works on the graph as it came.
Times of orders are this host's, of SciPy's and NumPy's single-threaded routines.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import breadth_first_order, reverse_cuthill_mckee

from benchmarks.harness import Benchmark, Options, Row
from benchmarks.machines.ndp_twins import GRAPHS, structure
from onehop import pictures
from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan

FIRST, LATER = "re-tiling, first layer", "re-tiling, later layers"
FIGURES = ("read_reduction_percent", "time_ms", "mapping", "order_seconds")


def breadth_first(matrix: scipy.sparse.csr_matrix) -> np.ndarray:
    """Breadth first from the node with the most edges; then the nodes that it does not reach."""
    start = int(np.diff(matrix.indptr).argmax())
    reached = breadth_first_order(matrix, start, directed=False, return_predecessors=False)
    left = np.ones(matrix.shape[0], dtype=bool)
    left[reached] = False
    return np.concatenate([reached, np.flatnonzero(left)])


ORDERS: dict[str, Callable[[scipy.sparse.csr_matrix], np.ndarray]] = {
    "index": lambda matrix: np.arange(matrix.shape[0]),
    "random": lambda matrix: np.random.default_rng(0).permutation(matrix.shape[0]),
    "degree": lambda matrix: np.argsort(-np.diff(matrix.indptr), kind="stable"),
    "breadth first": breadth_first,
    "reverse Cuthill-McKee": lambda matrix: reverse_cuthill_mckee(matrix, symmetric_mode=True),
}


def renumbered(graph: Graph, order: np.ndarray) -> Graph:
    """The graph whose node i is node order[i] of the given one."""
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return Graph.from_edge_index(torch.from_numpy(number)[graph.edge_index()], num_nodes=graph.num_dst)


def result(graph: Graph, plan: NdpPlan, width: int, seconds: float = 0.0) -> Row:
    """What the machine makes of a graph."""
    machine = Machine("grande_16")
    layer = machine.layers(graph, [width], plan, record=0)[0]
    return {
        "read_reduction_percent": machine.workload(graph, plan).read_reduction_percent(plan.tile),
        "time_ms": layer.time_ns / 1e6,
        "mapping": layer.run.mapping,
        "order_seconds": seconds,
    }


def rows(options: Options) -> Iterator[Row]:
    """Simulates a layer of each graph in every order."""
    for name in options.graphs:
        graph, width = structure(name, options.scale), options.width
        about = {"graph": name, "nodes": graph.num_dst, "edges": graph.num_edges}
        ones = np.ones(graph.num_edges, dtype=np.float32)
        shape = (graph.num_dst, graph.num_src)
        matrix = scipy.sparse.csr_matrix((ones, graph.col.numpy(), graph.rowptr.numpy()), shape=shape)
        for label, make in ORDERS.items():
            begin = time.perf_counter()
            order = make(matrix)
            seconds = time.perf_counter() - begin
            found = result(renumbered(graph, order), NdpPlan(retile="index"), width, seconds)
            yield {**about, "order": label, **found}
        first = result(graph, NdpPlan(), width)
        yield {**about, "order": FIRST, **first}
        later = Machine("grande_16").layers(graph, [width, width], NdpPlan(), record=0)[1]
        yield {**about, "order": LATER, **first, "time_ms": later.time_ns / 1e6}


def content(options: Options, rows: list[Row]) -> Row:
    """The orders of each graph, and after how many layers re-tiling has paid for the first one."""
    graphs: dict[str, Row] = {}
    for row in rows:
        graph, label, found = row["graph"], row["order"], {key: row[key] for key in FIGURES}
        whole = graphs.setdefault(graph, {"nodes": row["nodes"], "edges": row["edges"], "orders": {}})
        whole["orders"][label] = found
        if label == LATER:
            index, first, later = (whole["orders"][which]["time_ms"] for which in ("index", FIRST, LATER))
            pays = (first - later) / (index - later) if index > later else None
            whole["retiling_pays_after_layers"] = pays
    return {"graphs": graphs}


def draw(content: dict, path: Path) -> None:
    """For each graph: the machine's time in every order, over that in index order."""
    results = content["graphs"]
    figure = pictures.figure(10, 4.6)
    axes = figure.subplots()
    labels = list(next(iter(results.values()))["orders"])
    for at, label in enumerate(labels):
        places = [number + (at - len(labels) / 2 + 0.5) / (len(labels) + 1) for number in range(len(results))]
        lines = [found["orders"] for found in results.values()]
        times = [100 * line[label]["time_ms"] / line["index"]["time_ms"] for line in lines]
        bars = axes.bar(places, times, width=1 / (len(labels) + 1), color=pictures.PALETTE[at], label=label)
        saved = [f"{line[label]['read_reduction_percent']:.0f}" for line in lines]
        clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.3}  # of the line at 100 %
        axes.bar_label(bars, saved, fontsize=pictures.SMALL_SIZE, padding=2, bbox=clear)
    axes.axhline(100, color="black", linewidth=1)
    axes.set_xticks(
        range(len(results)), [f"{name}\n{found['edges']:,} edges" for name, found in results.items()]
    )
    axes.set_ylabel("time, % of index order")
    pictures.style(axes)
    pictures.legend(figure, axes)
    title = (
        f"One layer by the order of nodes, twins at a scale of {content['scale']:g}, "
        f"width {content['width']}; above the bars: feature reads saved, %"
    )
    pictures.save(figure, title, "simulated: grande_16", path)


BENCHMARK = Benchmark(
    "bench ndp orders",
    rows,
    "graph; order; reads saved, % | read_reduction_percent | {:.2f}; ms | time_ms | {:.3f}; mapping;"
    "order, s | order_seconds | {:.2f}",
    {"scale": 0.25, "width": 256, "graphs": tuple(GRAPHS)},
    key=None,
    threads=False,
    kept=("scale", "width"),
    more=content,
    draw=draw,
)

if __name__ == "__main__":
    BENCHMARK.main()
