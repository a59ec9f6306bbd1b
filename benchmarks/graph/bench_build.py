"""How fast a graph is built from a list of edges, beside SciPy's ``coo.tocsr()``.

    python -m benchmarks.graph.bench_build [--edges 11000000] [--rounds 7] [--threads N] [--json FILE]

Unsorted edges come in random order, sorted ones ordered by destination. SciPy gets int32 indices and float32
values of a COO matrix without duplicates, its fastest input; ours is PyG's int64 ``edge_index``, and the
permutation back to the caller's order is part of what is built. All are run in turn in every round; figures
are medians.
"""

from collections.abc import Callable, Iterator

import numpy as np
import scipy
import scipy.sparse
import torch

from benchmarks import columns
from benchmarks.harness import Benchmark, Options, Row
from onehop import Graph
from onehop.bench.stamp import machine_line, versions
from onehop.bench.timing import Times, interleave
from onehop.datasets import chung_lu


def check(graph: Graph, matrix: scipy.sparse.csr_array) -> None:
    """The same rows with the same sources, before any time is taken."""
    matrix.sort_indices()
    np.testing.assert_array_equal(graph.rowptr.numpy(), matrix.indptr)
    ours = scipy.sparse.csr_array(
        (np.ones(graph.num_edges), graph.col.numpy().copy(), matrix.indptr), matrix.shape
    )
    ours.sort_indices()
    np.testing.assert_array_equal(ours.indices, matrix.indices)


def builders(edge_index: torch.Tensor, nodes: int) -> dict[str, Callable[[], object]]:
    """What is compared, by name."""
    source, target = edge_index.numpy().astype(np.int32)
    values = np.ones(edge_index.size(1), dtype=np.float32)
    coo = scipy.sparse.coo_array((values, (target, source)), shape=(nodes, nodes))
    narrow = edge_index.int()
    check(Graph.from_edge_index(edge_index, num_nodes=nodes), coo.tocsr())
    return {
        "onehop int64": lambda: Graph.from_edge_index(edge_index, num_nodes=nodes),
        "onehop int32": lambda: Graph.from_edge_index(narrow, num_nodes=nodes),
        "scipy": coo.tocsr,
    }


def milliseconds(times: Times) -> Row:
    """The figures of a builder."""
    width = (max(times.seconds) - times.min_s) / times.median_s
    return {"median_ms": times.median_s * 1e3, "min_ms": times.min_s * 1e3, "spread": width}


def by_name(options: Options, rows: list[Row]) -> Row:
    """The results by name, and the machine where it was before there was a stamp."""
    results = {row["name"]: {key: value for key, value in row.items() if key != "name"} for row in rows}
    return {"machine": machine_line(), "versions": versions(), "results": results}


def rows(options: Options) -> Iterator[Row]:
    """Builds unsorted edges, then sorted ones."""
    ordered = chung_lu(options.nodes, options.edges)
    order = torch.randperm(options.edges, generator=torch.Generator().manual_seed(0))
    usual = 0.0
    for case, edge_index in (
        ("unsorted", ordered[:, order].contiguous()),
        ("sorted", ordered.flip(0).contiguous()),
    ):
        times = interleave(builders(edge_index, options.nodes), options.rounds)
        peer = times["scipy"].median_s
        # The unsorted case comes first: what SciPy takes for edges as they usually come.
        usual = usual or peer
        for name, found in times.items():
            ratios = {"times_scipy": peer / found.median_s, "times_scipy_unsorted": usual / found.median_s}
            yield {"name": f"{case}, {name}", **milliseconds(found), **ratios}


BENCHMARK = Benchmark(
    __doc__,
    "bench graph build",
    rows,
    columns.of(
        "name; ms | median_ms | {:.1f}; spread | spread | {:.0%}; over SciPy | times_scipy | x; "
        "over SciPy, unsorted | times_scipy_unsorted | x"
    ),
    {"edges": 11_000_000, "nodes": 58_000},
    key=None,
    rounds=7,
    kept=("edges", "nodes", "rounds", "threads"),
    more=by_name,
)

if __name__ == "__main__":
    BENCHMARK.main()
