"""Memory of GATv2's forward pass, DGL's over a fused kernel's, by counting tensors.

DGL's GATv2 makes three tensors of edges times width (the sum of both ends, its activation, and the product
with the attention vector), of which two are kept; a fused kernel, the paper's or ours, makes none.
"""

from onehop.reproduce.io_aware.graphs import GRAPHS, Size
from onehop.reproduce.rows import Chart, Row, Series

_HEADS, _HEAD_WIDTH, _ITEM_BYTES = 2, 64, 4
# The paper's table, H = 2, D = 64: peak of DGL over theirs, forward.
_PAPER = {"tolokers-2": 32.6, "twitch-views": 44.0, "ogbn-arxiv": 4.7, "city-roads-L": 1.8}
# Features, both projections, the output.
_NODE_ROWS = 4
# Rows an edge of DGL's at its peak; the third is gone where the allocator can free it first.
_EDGE_ROWS, _LEAST_EDGE_ROWS = 3, 2
# Column and row of an edge in both directions; DGL's four scores an edge and head.
_INDEX_BYTES, _SCORES = 16, 4


def fused_bytes(size: Size) -> int:
    """Bytes of a fused kernel's forward pass: rows of nodes, and the graph."""
    row = _HEADS * _HEAD_WIDTH * _ITEM_BYTES
    return size.nodes * (_NODE_ROWS * row + _HEADS * _ITEM_BYTES) + size.edges * _INDEX_BYTES


def dgl_bytes(size: Size, edge_rows: int = _EDGE_ROWS) -> int:
    """Bytes of DGL's forward pass: the same, and rows and scores of edges."""
    row = _HEADS * _HEAD_WIDTH * _ITEM_BYTES
    return fused_bytes(size) + size.edges * (edge_rows * row + _SCORES * _HEADS * _ITEM_BYTES)


def rows() -> list[Row]:
    """A row for each graph whose peak the paper gives."""
    found = []
    for graph, paper in _PAPER.items():
        size = GRAPHS[graph]
        low, high = (
            dgl_bytes(size, edge_rows) / fused_bytes(size) for edge_rows in (_LEAST_EDGE_ROWS, _EDGE_ROWS)
        )
        found.append(
            Row(
                figure=f"GATv2 forward, peak memory of DGL over a fused kernel's, H = 2, D = 64, {graph}",
                paper=paper,
                ours=high,
                low=low,
                high=high,
                unit="x",
                note="Bytes of the tensors, counted; the paper measured a peak, allocator included.",
            )
        )
    return found


def charts() -> tuple[Chart, ...]:
    """The ratio by graph, published and counted."""
    counted = rows()
    return (
        Chart(
            name="memory",
            title="GATv2 forward, H = 2, D = 64: peak memory of DGL over a fused kernel's",
            machine="published: A100; counted: bytes of the tensors, two or three rows an edge",
            unit="ratio, x",
            groups=tuple(_PAPER),
            series=(
                Series(label="published", values=tuple(row.paper for row in counted)),
                Series(
                    label="counted",
                    values=tuple(row.ours for row in counted),
                    low=tuple(row.low for row in counted),
                    high=tuple(row.high for row in counted),
                ),
            ),
        ),
    )
