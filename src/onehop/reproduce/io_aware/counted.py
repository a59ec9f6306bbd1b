"""Figures of the IO-aware kernels' paper that need no measurement: published values and counted bytes.

DGL's GATv2 creates three tensors of edges times width (the sum of both ends, its activation, and the product
with the attention vector), and keeps two of them. A fused kernel, the paper's or ours, creates none.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from onehop.reproduce.tables import Chart, Row, published, row


class Size(NamedTuple):
    """Nodes and edges of a graph."""

    nodes: int
    edges: int


# The paper's graphs, with the sizes that it gives.
GRAPHS = {
    "tolokers-2": Size(11_758, 1_038_000),
    "hm-categories": Size(46_563, 21_461_990),
    "ogbn-arxiv": Size(169_343, 1_166_243),
    "city-roads-L": Size(142_257, 279_061),
    "twitch-views": Size(168_114, 13_595_114),
    "pokec-regions": Size(1_632_803, 30_622_564),
    "web-traffic": Size(2_890_331, 12_895_369),
    "ogbn-products": Size(2_449_029, 123_718_280),
}
# Speed-ups over DGL, on an A100.
_HEADLINES = (
    ("GATv2 over DGL, best", 8.5),
    ("GATv2 over DGL, median", 2.0),
    ("Graph Transformer, fused over DGL, best", 3.9),
    ("Graph Transformer, fused over DGL, median", 1.6),
    ("Graph Transformer, tensor cores over DGL, best", 7.3),
    ("min over DGL, best", 10.0),
    ("min over DGL, median", 2.6),
    ("cached sparse products over DGL, best", 8.0),
)
# GATv2's peak memory: DGL's divided by the paper's.
_BEST_SAVING, _MEDIAN_SAVING = 76.0, 6.0
# GATv2 forward, H = 2, D = 64: peak memory of DGL divided by the paper's.
_MEMORY = {"tolokers-2": 32.6, "twitch-views": 44.0, "ogbn-arxiv": 4.7, "city-roads-L": 1.8}
# Rows per node: features, both projections, the output.
_NODE_ROWS = 4
# Rows per edge at DGL's peak; two if the allocator can free the third before.
_EDGE_ROWS = (3, 2)
# Bytes of an edge's column and row in both directions; number of scores per edge and head in DGL.
_INDEX_BYTES, _SCORES = 16, 4
# Milliseconds on the A100 at F = 64 (GATv2 with 2 heads), float32: forward and backward; then sums by cached
# matrices.
_GATV2_MS = {
    "tolokers-2": (0.77, 3.32),
    "hm-categories": (9.89, 46.3),
    "ogbn-arxiv": (3.96, 10.6),
    "city-roads-L": (0.50, 1.44),
    "twitch-views": (11.6, 54.6),
    "pokec-regions": (13.0, 52.3),
    "web-traffic": (85.4, 867.0),
    "ogbn-products": (42.4, 189.0),
}
_SUM_MS = {
    "tolokers-2": 0.17,
    "hm-categories": 2.35,
    "ogbn-arxiv": 0.36,
    "city-roads-L": 0.20,
    "twitch-views": 2.17,
    "pokec-regions": 6.18,
    "web-traffic": 2.40,
    "ogbn-products": 24.0,
}
# Bandwidth of the paper's A100 80 GB SXM4, in bytes per second.
_A100_BYTES_S = 2.0e12
_HEADS, _WIDTH = 2, 64
_ITEM_BYTES, _COLUMN_BYTES = 4, 4
_ROW = _WIDTH * _ITEM_BYTES


def headlines() -> list[Row]:
    """Return the paper's headline times, with the command that measures them on a machine with a GPU."""
    note = "Needs a GPU: `python -m benchmarks.gpu` measures this with ours there."
    return [row(figure, "x", note, paper=paper, headline=True) for figure, paper in _HEADLINES]


def savings() -> list[Row]:
    """Return the paper's headline figures of memory, counted on all its graphs."""
    by_graph = {
        graph: [dgl_bytes(size, rows) / fused_bytes(size) for rows in _EDGE_ROWS]
        for graph, size in GRAPHS.items()
    }
    best = max(by_graph, key=lambda graph: by_graph[graph][0])
    middle = [median(ratios) for ratios in zip(*by_graph.values(), strict=True)]
    counted = "Bytes of the tensors, counted, with three rows an edge or two"
    return [
        row(
            "GATv2, peak memory of DGL over theirs, best",
            "x",
            f"{counted}: {best}, of {GRAPHS[best].edges // GRAPHS[best].nodes} edges a node.",
            by_graph[best],
            _BEST_SAVING,
            headline=True,
        ),
        row(
            "GATv2, peak memory of DGL over theirs, median",
            "x",
            f"{counted}: H = 2, D = 64, {len(GRAPHS)} graphs; the paper has more sizes and sparser graphs.",
            middle,
            _MEDIAN_SAVING,
            headline=True,
        ),
    ]


def fused_bytes(size: Size) -> int:
    """Return the bytes of a fused GATv2 kernel's forward pass: rows of nodes, and the graph."""
    return size.nodes * _HEADS * (_NODE_ROWS * _ROW + _ITEM_BYTES) + size.edges * _INDEX_BYTES


def dgl_bytes(size: Size, edge_rows: int = _EDGE_ROWS[0]) -> int:
    """Return the bytes of DGL's forward pass: a fused kernel's bytes, and rows and scores of edges."""
    return fused_bytes(size) + size.edges * _HEADS * (edge_rows * _ROW + _SCORES * _ITEM_BYTES)


def memory() -> list[Row]:
    """Return the memory of GATv2's forward pass, for each graph whose peak the paper gives."""
    return [
        row(
            f"GATv2 forward, peak memory of DGL over a fused kernel's, H = 2, D = 64, {graph}",
            "x",
            "Bytes of the tensors, counted; the paper measured a peak, allocator included.",
            [dgl_bytes(GRAPHS[graph], rows) / fused_bytes(GRAPHS[graph]) for rows in _EDGE_ROWS],
            paper,
        )
        for graph, paper in _MEMORY.items()
    ]


def charts() -> tuple[Chart, ...]:
    """Return a chart of the memory ratio by graph, published and counted."""
    return (
        Chart(
            name="memory",
            title="GATv2 forward, H = 2, D = 64: peak memory of DGL over a fused kernel's",
            machine="published: A100; counted: bytes of the tensors, two or three rows an edge",
            unit="ratio, x",
            groups=tuple(_MEMORY),
            series=published(memory(), "counted"),
        ),
    )


def gatv2_forward_bytes(size: Size) -> int:
    """Return the bytes of GATv2 forward without cache reuse: index and source row per edge, rows per node."""
    return size.edges * (_COLUMN_BYTES + _ROW) + size.nodes * (2 * _ROW + 4 * _HEADS)


def gatv2_backward_bytes(size: Size) -> int:
    """Return the bytes of GATv2 backward without cache reuse: three gathers per edge over both directions."""
    return size.edges * (2 * _COLUMN_BYTES + 3 * _ROW + 8 * _HEADS) + 8 * size.nodes * _ROW


def sum_bytes(size: Size) -> int:
    """Return the bytes of a sum without cache reuse."""
    return (size.edges + size.nodes) * (_COLUMN_BYTES + _ROW)


def times() -> Iterator[Row]:
    """Yield the paper's times on its GPU; each note has the minimum time of the bytes."""
    for graph, (forward, backward) in _GATV2_MS.items():
        yield _time("GATv2 forward", forward, gatv2_forward_bytes, graph)
        yield _time("GATv2 backward", backward, gatv2_backward_bytes, graph)
    for graph, ms in _SUM_MS.items():
        yield _time("sum by cached matrices", ms, sum_bytes, graph)


def _time(what: str, paper: float, moved: Callable[[Size], int], graph: str) -> Row:
    floor = moved(GRAPHS[graph]) / _A100_BYTES_S * 1e3
    note = (
        f"Needs a GPU; without reuse in caches its bytes take {floor:.3g} ms at 2 TB/s, "
        f"{100 * floor / paper:.0f} % of the paper's time."
    )
    return row(f"{what}, F = {_WIDTH}, {graph}", "ms", note, paper=paper)
