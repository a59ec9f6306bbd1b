"""Which feature reads tiles share in a graph too large to be kept, estimated from windows of its rows.

A tile is a number of nodes that are worked on together; a source that several of them need is read once. In
the order of the node numbers, tiles are runs of rows. Re-tiled, nodes come in the order in which they first
appear when rows, self loops included, are read one after another, and a node's first appearance depends on
its own row alone: it is in the row of its smallest neighbour, or in its own where that is smaller still. So a
window anywhere in the list of nodes can be computed without the rows before it.
"""

from dataclasses import dataclass

import numpy as np

from onehop.datasets import Progress
from onehop.datasets.implicit_graph import ImplicitGraph

# Rows that are read at most for a window of the list.
_ROWS = 1000
# Windows in each stratum: two, since their difference tells the error.
_PER_STRATUM = 2


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share of reads.

    Attributes:
        percent: Reads that tiles save, of all edges, self loops included.
        error: Standard error of ``percent``, in points.
    """

    percent: float
    error: float


@dataclass(frozen=True, slots=True)
class _Window:
    """Nodes in order, with their rows, self loops included; how many nodes come on one row of the graph."""

    rowptr: np.ndarray
    col: np.ndarray
    density: float

    def counts(self, tile: int) -> tuple[float, float]:
        """Edges and saved reads on one row of the graph."""
        nodes = len(self.rowptr) - 1
        if nodes == 0:
            return 0.0, 0.0
        tile_of = np.repeat(np.arange(nodes) // tile, np.diff(self.rowptr))
        pairs = np.unique(tile_of * (self.col.max() + np.int64(1)) + self.col)
        edges = self.density * len(self.col) / nodes
        return edges, edges * (1 - len(pairs) / len(self.col))


def shared_reads(
    graph: ImplicitGraph,
    order: str,
    tiles: list[int],
    *,
    nodes: int = 1024,
    strata: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[int, Estimate]:
    """For each size of tile, what tiles of nodes that follow each other share.

    Args:
        graph: The graph; self loops are added.
        order: "index", by number, or "rows", by first appearance.
        tiles: Sizes of tiles, in nodes.
        nodes: Nodes of a window: few beside the graph's, many beside a tile's.
        strata: Parts of the graph, with two windows each.
        seed: Where the windows lie.
        progress: Told how far it is.
    """
    rng = np.random.default_rng([seed, 6])
    if order == "rows":
        # Rows that come first list most nodes, so strata are narrow there.
        bounds = graph.num_nodes * np.linspace(0, 1, strata + 1) ** 3
        what, listed = "sampling re-tiled nodes", _listed
    else:
        bounds = np.linspace(0, graph.num_nodes, strata + 1)
        what, listed = "sampling in index order", _numbered
    widths = np.diff(bounds)
    windows = []
    for number, (low, width) in enumerate(zip(bounds, widths, strict=False)):
        begins = [int(low + rng.random() * width) for _ in range(_PER_STRATUM)]
        windows.append([listed(graph, begin, nodes) for begin in begins])
        if progress is not None:
            progress(what, (number + 1) / len(widths))
    return {tile: _ratio([[one.counts(tile) for one in pair] for pair in windows], widths) for tile in tiles}


def _numbered(graph: ImplicitGraph, begin: int, wanted: int) -> _Window:
    """The nodes from the number ``begin`` on."""
    return _Window(*_with_loops(graph, np.arange(begin, min(begin + wanted, graph.num_nodes))), 1.0)


def _listed(graph: ImplicitGraph, begin: int, wanted: int) -> _Window:
    """The nodes that first appear in the rows from ``begin`` on."""
    nodes: list[np.ndarray] = []
    rows, count, step = 0, 0, 16
    while count < wanted and rows < _ROWS and begin + rows < graph.num_nodes:
        here = np.arange(begin + rows, min(begin + rows + step, graph.num_nodes))
        _, col = _with_loops(graph, here)
        candidates = np.unique(col)
        rowptr, col = _with_loops(graph, candidates)
        first = np.minimum.reduceat(col, rowptr[:-1])
        new = (first >= here[0]) & (first <= here[-1])
        nodes.append(candidates[new][np.argsort(first[new], kind="stable")])
        rows, count = rows + len(here), count + int(new.sum())
        step = min(2 * step, 512)
    found = np.concatenate(nodes)
    return _Window(*_with_loops(graph, found), len(found) / rows)


def _with_loops(graph: ImplicitGraph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a self loop each, as the last entry."""
    rowptr, col = graph.rows(nodes)
    return rowptr + np.arange(len(rowptr)), np.insert(col.astype(np.int64), rowptr[1:], nodes)


def _ratio(counts: list[list[tuple[float, float]]], widths: np.ndarray) -> Estimate:
    """Saved reads over edges, strata weighted by their widths; the error by linearisation."""
    edges, saved = np.moveaxis(np.array(counts), -1, 0)
    total = float(widths @ edges.mean(axis=1))
    share = float(widths @ saved.mean(axis=1)) / total
    residual = saved - share * edges
    variance = float(widths**2 @ ((residual[:, 0] - residual[:, 1]) / 2) ** 2)
    return Estimate(100 * share, 100 * variance**0.5 / total)
