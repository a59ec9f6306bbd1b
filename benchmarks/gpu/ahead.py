"""``python -m benchmarks.gpu.ahead``: compiles in parallel what the tests and the benchmark will launch.

Triton compiles a kernel when it is first launched, one after the other. Here the same calls are made on small
graphs of the same mean degree, on the GPU; their launches are written down instead of done, and compiled by
many processes into triton's cache, where the real launches find them.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
import triton

from benchmarks.gpu.compiled import in_processes, source_of
from benchmarks.gpu.correctness import TESTED_HUB, hostile_edges
from benchmarks.gpu.graphs import GRAPHS, edge_index_of
from benchmarks.gpu.grid import Case, grid
from benchmarks.gpu.launches import Launch, launches_of
from benchmarks.gpu.operators import OPERATORS, Operator, Size
from benchmarks.gpu.options import DTYPES, can_run
from benchmarks.gpu.untimed import SIZES, UNTIMED
from onehop import Graph
from onehop.kernels.triton import availability, merges

# Most nodes and edges of the graphs that stand for those of the benchmark: enough for rows of every length.
_NODES, _EDGES = 20_000, 2_000_000


def launches(cases: Iterable[Case], device: torch.device) -> list[Launch]:
    """Returns what some cases of the grid launch, forward and backward, each once; nothing runs."""
    graphs: dict[str, Graph] = {}

    def call_of(case: Case) -> Callable[[], Any]:
        def call() -> None:
            figures = GRAPHS[case.graph]
            scale = min(_NODES / figures.nodes, _EDGES / figures.edges, 1.0)
            if case.graph not in graphs:
                edge_index, nodes = edge_index_of(case.graph, device, scale)
                graphs[case.graph] = Graph.from_edge_index(edge_index.cpu(), nodes)
            # Hubs are smaller too: they are merged in as many levels as the benchmark's.
            shorter = figures.scaled(scale).longest_row / figures.longest_row
            with mock.patch.object(merges, "MOST_SLOTS", max(int(merges.MOST_SLOTS * shorter), 2)):
                _run(
                    OPERATORS[case.operator],
                    graphs[case.graph],
                    (case.heads, case.width),
                    DTYPES[case.dtype],
                    device,
                )

        return call

    return launches_of(*(call_of(case) for case in cases))


def untimed_launches(operators: Iterable[str], dtypes: Iterable[str], device: torch.device) -> list[Launch]:
    """Returns what tests launch of operators that are not measured, forward and backward; nothing runs."""
    edge_index, nodes = hostile_edges(device, TESTED_HUB)
    graph = Graph.from_edge_index(edge_index.cpu(), nodes)
    forms = itertools.product(operators, SIZES, dtypes)
    return launches_of(
        *(partial(_run, UNTIMED[name], graph, size, DTYPES[dtype], device) for name, size, dtype in forms)
    )


def _run(
    operator: Operator, graph: Graph, size: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Forward and backward, of heads and the width of each."""
    inputs = operator.inputs(Size(graph.num_dst, graph.num_edges, *size), dtype, device)
    out = operator.ours(graph, inputs)
    torch.autograd.grad(out, list(inputs.values()), torch.empty_like(out))


def compile_all(found: Sequence[Launch], target: Any, processes: int) -> None:
    """Compiles launches into triton's cache, for triton's name of the GPU; no process touches the GPU."""

    def compile_one(number: int) -> None:
        launch = found[number]
        triton.compile(source_of(launch), target=target, options=dict(launch.options))

    for _ in in_processes(compile_one, len(found), processes):
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles, and says how much and how long; returns 2 where the kernels cannot run, else 0."""
    parser = argparse.ArgumentParser(
        description="Compile the kernels of the GPU tests and benchmark in parallel."
    )
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--operators", nargs="+", choices=list(OPERATORS), default=list(OPERATORS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["float32", "bfloat16"])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    if not can_run():
        return 2
    begin = time.perf_counter()
    device = availability.current()
    measured = launches(grid(chosen.graphs, chosen.operators, chosen.dtypes), device)
    found = list(dict.fromkeys([*measured, *untimed_launches(UNTIMED, chosen.dtypes, device)]))
    compile_all(found, triton.runtime.driver.active.get_current_target(), chosen.processes)
    seconds = time.perf_counter() - begin
    sys.stdout.write(f"{len(found)} kernels compiled in {seconds:.0f} s by {chosen.processes} processes.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
