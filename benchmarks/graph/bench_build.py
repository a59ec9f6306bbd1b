"""How fast a graph is built from a list of edges, beside SciPy's ``coo.tocsr()``.

    python benchmarks/graph/bench_build.py [--edges 11000000] [--rounds 7] [--threads N] [--json FILE]

Unsorted edges come in random order, sorted ones ordered by destination. SciPy gets int32 indices and float32
values of a COO matrix without duplicates, its fastest input; ours is PyG's int64 ``edge_index``, and the
permutation back to the caller's order is part of what is built. All are run in turn in every round; figures
are medians.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import scipy.sparse
import torch

import onehop
from onehop import Graph
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
    result: dict[str, Callable[[], object]] = {
        "onehop int64": lambda: Graph.from_edge_index(edge_index, num_nodes=nodes),
        "onehop int32": lambda: Graph.from_edge_index(narrow, num_nodes=nodes),
        "scipy": coo.tocsr,
    }
    check(Graph.from_edge_index(edge_index, num_nodes=nodes), coo.tocsr())
    return result


def measure(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every round; one round before them is not counted."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, build in candidates.items():
            start = time.perf_counter()
            built = build()
            elapsed = (time.perf_counter() - start) * 1e3
            del built
            if number:
                times[name].append(elapsed)
    return times


def main() -> None:
    """Measures, prints a table, and writes JSON where asked."""
    parser = argparse.ArgumentParser(description="Graph from a list of edges, beside SciPy's coo.tocsr().")
    parser.add_argument("--edges", type=int, default=11_000_000)
    parser.add_argument("--nodes", type=int, default=58_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ordered = chung_lu(options.nodes, options.edges, progress=lambda what, done: print(f"{what}: {done:.0%}"))
    by_target = ordered.flip(0).contiguous()
    shuffled = ordered[
        :, torch.randperm(options.edges, generator=torch.Generator().manual_seed(0))
    ].contiguous()
    results = {}
    usual = 0.0
    for case, edge_index in (("unsorted", shuffled), ("sorted", by_target)):
        times = measure(builders(edge_index, options.nodes), options.rounds)
        peer = statistics.median(times["scipy"])
        # The unsorted case comes first: what SciPy takes for edges as they usually come.
        usual = usual or peer
        for name, samples in times.items():
            median = statistics.median(samples)
            spread = (max(samples) - min(samples)) / median
            results[f"{case}, {name}"] = {
                "median_ms": median, "min_ms": min(samples), "spread": spread, "times_scipy": peer / median,
                "times_scipy_unsorted": usual / median,
            }  # fmt: skip
            print(
                f"{case:9} {name:13} {median:8.1f} ms   +-{spread / 2:4.0%}   {peer / median:5.2f} x SciPy   "
                f"{usual / median:5.2f} x SciPy on unsorted edges"
            )
    report = {
        "edges": options.edges,
        "nodes": options.nodes,
        "rounds": options.rounds,
        "threads": options.threads,
        "machine": f"{platform.processor() or platform.machine()}, {platform.system()} {platform.release()}",
        "versions": {
            "onehop": onehop.__version__,
            "torch": torch.__version__,
            "scipy": scipy.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "results": results,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
