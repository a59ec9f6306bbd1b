"""Peak memory of the IO-aware kernels' paper, counted tensor by tensor over the paper's own sweep.

DGL's GATv2 creates three tensors of edges times width (the sum of both ends, its activation, and the product
with the attention vector), and keeps two of them. A fused kernel, the paper's or ours, creates none.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from statistics import median
from typing import NamedTuple

from onehop.reproduce.intervals import BASE, OUR_CHOICE, Interval, Setting, Unknown, decides, interval
from onehop.reproduce.tables import Chart, Row, published, row


class Size(NamedTuple):
    """Nodes and edges of a graph."""

    nodes: int
    edges: int


# The paper's graphs, with the sizes that it gives. Graphs of several tasks are listed once.
GRAPHS = {
    "tolokers-2": Size(11_758, 1_038_000),
    "hm-categories": Size(46_563, 21_461_990),
    "ogbn-arxiv": Size(169_343, 1_166_243),
    "city-roads-L": Size(142_257, 279_061),
    "twitch-views": Size(168_114, 13_595_114),
    "pokec-regions": Size(1_632_803, 30_622_564),
    "web-traffic": Size(2_890_331, 12_895_369),
    "ogbn-products": Size(2_449_029, 123_718_280),
    "cora": Size(2_708, 10_556),
    "citeseer": Size(3_327, 9_104),
    "pubmed": Size(19_717, 88_648),
    "artnet-exp": Size(50_405, 560_696),
    "city-roads-M": Size(57_073, 132_570),
    "avazu-ctr": Size(76_269, 21_968_154),
    "city-reviews": Size(148_801, 2_330_830),
}
# The paper's sweeps: heads and columns of each for GATv2; heads and columns of all for its Graph Transformer;
# columns of reductions.
GATV2 = tuple(product((2, 4, 8), (32, 64, 128, 256)))
TRANSFORMER = tuple(product((2, 4, 8), (256, 512)))
REDUCED = (64, 128, 256, 512)
# Memory of the paper's A100: what exceeds it has no ratio.
GPU_BYTES = 80e9
# GATv2's peak memory over the sweep: DGL's divided by the paper's.
_BEST_SAVING, _MEDIAN_SAVING = 76.0, 6.0
# H = 2, D = 64: peak memory of DGL divided by the paper's, forward and backward.
_PUBLISHED = {
    "tolokers-2": (32.6, 28.6),
    "twitch-views": (44.0, 32.0),
    "ogbn-arxiv": (4.7, 3.5),
    "city-roads-L": (1.8, 1.5),
}
_HEADS, _WIDTH = 2, 64
# The largest ratio of a Graph Transformer, and the smallest and largest of min.
_TRANSFORMER_MOST, _MIN_LEAST, _MIN_MOST = 6.7, 1.4, 2.0
# The last decimal of these.
_DECIMAL = 0.1
_ITEM_BYTES = 4
# Bytes of an edge's column and row in both directions; of a column in one.
_INDEX_BYTES, _COLUMN_BYTES = 16, 4
# GATv2: rows for each node, forward (features, both projections, the output) and backward (the gradients of
# these four as well); numbers for each edge and head in DGL's softmax.
_NODE_ROWS, _BACKWARD_NODE_ROWS, _SCORES = 4, 8, 4
# Graph Transformer: queries, keys, values, the output. min: features, the output, its sources.
_TRANSFORMER_ROWS, _MIN_ROWS = 4, 3

# Rows for each edge at DGL's peak, forward and backward, and numbers for each edge and head of a Graph
# Transformer: ours, and the other end.
_FORWARD_EDGE_ROWS, _BACKWARD_EDGE_ROWS, _TRANSFORMER_NUMBERS = (3, 2), (3, 4), (4, 5)
# Rows for each edge that DGL's forward pass creates.
_CREATED_ROWS = 3
_FREED, _KEPT = "two rows for each edge", "four rows for each edge"
_ROWS = Unknown(
    "rows for each edge at DGL's peak, forward",
    "three",
    (_FREED,),
    "DGL's layer creates three; the allocator can free one before the last is created",
    "DGL's peak, measured on a GPU",
)
_BACKWARD_ROWS = Unknown(
    "rows for each edge at DGL's peak, backward",
    "three",
    (_KEPT,),
    "two are kept for the gradient, whose own rows are one or two: the activation's and the sum's",
    "DGL's peak, measured on a GPU",
)
_MORE_SCORES = "five numbers for each edge and head"
_TRANSFORMER_SCORES = Unknown(
    "numbers for each edge and head at DGL's peak, Graph Transformer",
    "four",
    (_MORE_SCORES,),
    f"{OUR_CHOICE}: the products, scaled, less their maximum, and the quotients; dropout adds one",
    "DGL's peak, measured on a GPU",
)
_BOTH_ENDS = "both ends of an extremum's edge"
_EXTREMUM_ROWS = Unknown(
    "rows for each node at DGL's peak, min",
    "features, output, sources, a mask of a byte, the masked output",
    (_BOTH_ENDS,),
    f"{OUR_CHOICE}: DGL masks infinities of empty rows; its kernel may keep an extremum's edge as well",
    "DGL's peak, measured on a GPU",
)


def fused_bytes(size: Size, heads: int = _HEADS, width: int = _WIDTH, node_rows: int = _NODE_ROWS) -> int:
    """Return the bytes of a fused GATv2 kernel's pass: rows of nodes, and the graph."""
    of_node = heads * (node_rows * width * _ITEM_BYTES + _ITEM_BYTES)
    return size.nodes * of_node + size.edges * _INDEX_BYTES


def dgl_bytes(
    size: Size,
    edge_rows: int = 3,
    heads: int = _HEADS,
    width: int = _WIDTH,
    node_rows: int = _NODE_ROWS,
) -> int:
    """Return the bytes of DGL's pass: a fused kernel's bytes, and rows and scores of edges."""
    of_edge = heads * (edge_rows * width * _ITEM_BYTES + _SCORES * _ITEM_BYTES)
    return fused_bytes(size, heads, width, node_rows) + size.edges * of_edge


def transformer_ratio(size: Size, heads: int, columns: int, scores: int = 4) -> float:
    """Return DGL's bytes of a Graph Transformer's forward pass divided by a fused kernel's."""
    fused = size.nodes * _TRANSFORMER_ROWS * columns * _ITEM_BYTES + size.edges * _INDEX_BYTES
    return (fused + size.edges * heads * scores * _ITEM_BYTES) / fused


def min_ratio(size: Size, columns: int, both_ends: bool = False) -> float:
    """Return DGL's bytes of a minimum's forward pass divided by a fused kernel's."""
    graph, row_bytes = size.edges * _COLUMN_BYTES, columns * _ITEM_BYTES
    more = row_bytes * (1 + both_ends) + columns
    fused = size.nodes * _MIN_ROWS * row_bytes + graph
    return (fused + size.nodes * more) / fused


def savings() -> list[Row]:
    """Return the paper's headline figures of memory, GATv2 forward, over its graphs and its sweep."""
    ours, freed = (dict(_over_sweep(edge_rows)) for edge_rows in _FORWARD_EDGE_ROWS)
    best = max(ours, key=ours.__getitem__)
    cells = f"{len(ours)} cells of {len(GRAPHS)} graphs and the paper's sweep that fit 80 GB in DGL"
    note = (
        f"Bytes of the tensors, counted: {cells}, forward; the largest is {best}. The paper measured a peak, "
        "allocator included, and gives no cell; its forward cells alone reach 183."
    )
    return [
        _counted(
            f"GATv2, peak memory of DGL over theirs, {name}",
            note,
            {BASE: over(ours.values()), frozenset({_FREED}): over(freed.values())},
            paper,
            (_ROWS,),
            headline=True,
        )
        for name, over, paper in (("best", max, _BEST_SAVING), ("median", median, _MEDIAN_SAVING))
    ]


def _over_sweep(edge_rows: int) -> Iterator[tuple[str, float]]:
    """Yield the ratio of every cell whose tensors fit the GPU in DGL, by the cell's name."""
    for (graph, size), (heads, width) in product(GRAPHS.items(), GATV2):
        # Whether a cell fits is a property of the paper's runs, so it does not depend on what is varied.
        if dgl_bytes(size, _CREATED_ROWS, heads, width) < GPU_BYTES:
            ratio = dgl_bytes(size, edge_rows, heads, width) / fused_bytes(size, heads, width)
            yield f"{graph}, H = {heads}, D = {width}", ratio


def memory() -> list[Row]:
    """Return the memory of GATv2 by graph and direction, of Graph Transformers, and of min."""
    rows = []
    for graph, (forward, backward) in _PUBLISHED.items():
        size, figure = GRAPHS[graph], f"peak memory of DGL over a fused kernel's, H = 2, D = 64, {graph}"
        note = "Bytes of the tensors, counted; the paper measured a peak, allocator included."
        values = {
            setting: dgl_bytes(size, edge_rows) / fused_bytes(size)
            for setting, edge_rows in zip((BASE, frozenset({_FREED})), _FORWARD_EDGE_ROWS, strict=True)
        }
        rows.append(_counted(f"GATv2 forward, {figure}", note, values, forward, (_ROWS,)))
        fused = fused_bytes(size, node_rows=_BACKWARD_NODE_ROWS)
        values = {
            setting: dgl_bytes(size, edge_rows, node_rows=_BACKWARD_NODE_ROWS) / fused
            for setting, edge_rows in zip((BASE, frozenset({_KEPT})), _BACKWARD_EDGE_ROWS, strict=True)
        }
        rows.append(_counted(f"GATv2 backward, {figure}", note, values, backward, (_BACKWARD_ROWS,)))
    return [*rows, *_transformers(), *_minima()]


def _transformers() -> Iterator[Row]:
    cells = tuple(product(GRAPHS.values(), TRANSFORMER))
    values = {
        setting: max(transformer_ratio(size, heads, columns, scores) for size, (heads, columns) in cells)
        for setting, scores in zip((BASE, frozenset({_MORE_SCORES})), _TRANSFORMER_NUMBERS, strict=True)
    }
    note = "Bytes of the tensors, counted, over the paper's graphs and sweep. The paper's smallest is 1.0."
    figure = "Graph Transformer, peak memory of DGL over a fused kernel's, most"
    yield _counted(figure, note, values, _TRANSFORMER_MOST, (_TRANSFORMER_SCORES,))


def _minima() -> Iterator[Row]:
    cells = tuple(product(GRAPHS.values(), REDUCED))
    note = "Bytes of the tensors, counted, over the paper's graphs and sweep, forward."
    ends: tuple[tuple[str, Callable[..., float], float], ...] = (
        ("least", min, _MIN_LEAST),
        ("most", max, _MIN_MOST),
    )
    for name, over, paper in ends:
        values = {
            setting: over(min_ratio(size, columns, both) for size, columns in cells)
            for setting, both in ((BASE, False), (frozenset({_BOTH_ENDS}), True))
        }
        figure = f"min, peak memory of DGL over a fused kernel's, {name}"
        yield _counted(figure, note, values, paper, (_EXTREMUM_ROWS,), place=_DECIMAL)


def _counted(
    figure: str,
    note: str,
    values: Mapping[Setting, float],
    paper: float,
    unknowns: tuple[Unknown, ...],
    headline: bool = False,
    place: float | None = None,
) -> Row:
    spanned: Interval = interval(values)
    return row(
        figure,
        "x",
        note,
        spanned,
        paper,
        headline=headline,
        place=place,
        decides=decides(spanned, unknowns),
        unknowns=unknowns,
    )


def charts() -> tuple[Chart, ...]:
    """Return a chart of the memory ratio by graph, published and counted."""
    forward = [each for each in memory() if each.figure.startswith("GATv2 forward")]
    return (
        Chart(
            name="memory",
            title="GATv2 forward, H = 2, D = 64: peak memory of DGL over a fused kernel's",
            machine="published: A100; counted: bytes of the tensors, two or three rows an edge",
            unit="ratio, x",
            groups=tuple(_PUBLISHED),
            series=published(forward, "counted"),
        ),
    )
