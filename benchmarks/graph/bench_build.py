"""How fast a graph is built from a list of edges, beside SciPy's ``coo.tocsr()``.

    python benchmarks/graph/bench_build.py [--edges 11000000] [--rounds 7] [--threads N] [--json FILE]

Unsorted edges come in random order, sorted ones ordered by destination. SciPy gets int32 indices and float32
values of a COO matrix without duplicates, its fastest input; ours is PyG's int64 ``edge_index``, and the
permutation back to the caller's order is part of what is built. All are run in turn in every round; figures
are medians.
"""

from collections.abc import Callable

import numpy as np
import scipy
import scipy.sparse
import torch

from onehop import Graph
from onehop.bench import command
from onehop.bench.stamp import machine_line, versions
from onehop.bench.timing import interleave
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


def main() -> None:
    """Measures, prints a table, and writes JSON where asked."""
    parser = command.parser(__doc__, rounds=7, threads=True)
    parser.add_argument("--edges", type=int, default=11_000_000)
    parser.add_argument("--nodes", type=int, default=58_000)
    options = command.read(parser)
    ordered = chung_lu(options.nodes, options.edges, progress=lambda what, done: print(f"{what}: {done:.0%}"))
    by_target = ordered.flip(0).contiguous()
    shuffled = ordered[
        :, torch.randperm(options.edges, generator=torch.Generator().manual_seed(0))
    ].contiguous()
    results = {}
    usual = 0.0
    for case, edge_index in (("unsorted", shuffled), ("sorted", by_target)):
        times = interleave(builders(edge_index, options.nodes), options.rounds)
        peer = times["scipy"].median_s
        # The unsorted case comes first: what SciPy takes for edges as they usually come.
        usual = usual or peer
        for name, found in times.items():
            median = found.median_s
            spread = (max(found.seconds) - found.min_s) / median
            results[f"{case}, {name}"] = {
                "median_ms": median * 1e3, "min_ms": found.min_s * 1e3, "spread": spread,
                "times_scipy": peer / median, "times_scipy_unsorted": usual / median,
            }  # fmt: skip
            print(
                f"{case:9} {name:13} {median * 1e3:8.1f} ms   +-{spread / 2:4.0%}   "
                f"{peer / median:5.2f} x SciPy   {usual / median:5.2f} x SciPy on unsorted edges"
            )
    chosen = {name: getattr(options, name) for name in ("edges", "nodes", "rounds", "threads")}
    # The machine and the versions stood at the top before there was a stamp.
    found = {"machine": machine_line(), "versions": versions(), "results": results}
    command.write(options, "bench graph build", {**chosen, **found})


if __name__ == "__main__":
    main()
