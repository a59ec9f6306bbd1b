"""How long graphs take that are made as on a GPU, by torch, beside the native builder; all on the CPU.

    python -m benchmarks.graph.bench_placed [--rounds 7] [--threads N] [--json FILE]

A GPU makes the graph of a fresh ``edge_index`` by sorts and running sums of torch. Here the same operations
run on torch's CPU device, so the times say what they cost there, not what a GPU takes. Steps are counted
together: the rows, then the transpose too, then the work items of both directions, at width 64. Both ways
must give the same rows, or nothing is timed. All are run in turn in every round; figures are medians.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.harness import Benchmark, Options, Row
from onehop import Graph
from onehop.bench.stamp import machine_line, versions
from onehop.bench.timing import Times, interleave
from onehop.graph import placed
from onehop.kernels.triton.work import work_of
from onehop.plans.triton_default import default_triton_plan

CPU = torch.device("cpu")
# A mini-batch, the one whose time was first found to matter, and a graph: nodes and edges.
SIZES = {"mini-batch": (100_000, 300_000), "graph": (200_000, 4_000_000)}
STEPS = ("rows", "and transpose", "and work items")
WIDTH = 64


@contextmanager
def made_on(devices: set[str]) -> Iterator[None]:
    """Graphs are made by torch on these devices inside the block, and natively elsewhere."""
    before, placed.MADE_ON = placed.MADE_ON, devices
    try:
        yield
    finally:
        placed.MADE_ON = before


def made(edge_index: Tensor, nodes: int, devices: set[str], step: str) -> Graph:
    """A fresh graph, with what a step needs."""
    with made_on(devices):
        graph = Graph.from_edge_index(edge_index, num_nodes=nodes)
        graph.on(CPU)
        if step == "rows":
            return graph
        graph.on(CPU, True)
        if step == "and transpose":
            return graph
        plan = default_triton_plan(WIDTH, 4, nodes, edge_index.size(1))
        for transposed in (False, True):
            work_of(graph, transposed, CPU, plan.split_edges, plan.short_edges)
        return graph


def check(ours: Graph, native: Graph) -> None:
    """The same rows and the same transpose, before any time is taken."""
    for transposed in (False, True):
        one, other = ours.on(CPU, transposed), native.on(CPU, transposed)
        for name in ("rowptr", "col", "perm"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)


def builders(edge_index: Tensor, nodes: int) -> dict[str, Callable[[], object]]:
    """What is compared, by name."""
    ways = {"native": set[str](), "torch": {"cpu"}}
    check(*(made(edge_index, nodes, ways[way], "and transpose") for way in ("torch", "native")))

    def build(way: str, step: str) -> Callable[[], object]:
        return lambda: made(edge_index, nodes, ways[way], step)

    return {f"{step}, {way}": build(way, step) for step in STEPS for way in ways}


def milliseconds(times: Times) -> Row:
    """The figures of a builder."""
    width = (max(times.seconds) - times.min_s) / times.median_s
    return {"median_ms": times.median_s * 1e3, "min_ms": times.min_s * 1e3, "spread": width}


def by_name(options: Options, rows: list[Row]) -> Row:
    """The results by name, and the machine where it was before there was a stamp."""
    results = {row["name"]: {key: value for key, value in row.items() if key != "name"} for row in rows}
    return {"machine": machine_line(), "versions": versions(), "results": results}


def rows(options: Options) -> Iterator[Row]:
    """Builds graphs of every size."""
    for size, (nodes, edges) in SIZES.items():
        edge_index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
        times = interleave(builders(edge_index, nodes), options.rounds)
        for name, found in times.items():
            native = times[f"{name.rpartition(', ')[0]}, native"].median_s
            about = {"name": f"{size}, {name}", "nodes": nodes, "edges": edges}
            yield {**about, **milliseconds(found), "times_native": found.median_s / native}


BENCHMARK = Benchmark(
    "bench graph build on a device",
    rows,
    "name; ms | median_ms | {:.1f}; spread | spread | {:.0%}; over native | times_native | x",
    key=None,
    rounds=7,
    kept=("rounds", "threads"),
    more=lambda options, rows: {"width": WIDTH, **by_name(options, rows)},
)

if __name__ == "__main__":
    BENCHMARK.main()
