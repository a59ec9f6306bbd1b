"""Figure 7's fifth graph at its full size: which reads tiles share in papers, estimated from windows of rows.

    python benchmarks/machines/bench_papers_windows.py [--graph papers] [--strata 16]
        [--json benchmarks/results/machines/papers_windows.json]

The graph has 111 million nodes and 3.2 thousand million edges; none is kept (onehop.datasets.implicit). Every
estimate comes with its standard error. What is known of the original: below 1 % in index order.
"""

import argparse
from pathlib import Path

from onehop.bench import sampled_reads
from onehop.bench.report import write_json
from onehop.datasets import implicit

TILES = [4, 8, 16, 32, 64, 128]


def main() -> None:
    """Estimates both orders and prints a table."""
    parser = argparse.ArgumentParser(description="Reads that tiles share in a graph too large to be kept.")
    parser.add_argument("--graph", default="papers")
    parser.add_argument("--strata", type=int, default=16)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    graph = implicit(options.graph)
    orders = {"index": sampled_reads.index_order, "rows": sampled_reads.row_order}
    lines = []
    for order, estimate in orders.items():
        found = estimate(
            graph, TILES, strata=options.strata, progress=lambda what, done: print(f"{what}: {done:.0%}")
        )
        for tile, one in found.items():
            lines.append({"order": order, "tile": tile, "percent": one.percent, "error": one.error})
    for line in lines:
        print(f"{line['order']:>6} {line['tile']:>4}  {line['percent']:6.3f} % +- {line['error']:.3f}")
    if options.json is not None:
        write_json(
            options.json,
            "papers_windows",
            {"graph": options.graph, "nodes": graph.num_nodes, "estimates": lines},
        )


if __name__ == "__main__":
    main()
