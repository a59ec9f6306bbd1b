"""Absolute times on an A100, which need a GPU, and the floors of their bytes, which do not."""

from collections.abc import Callable

from onehop.reproduce.io_aware.graphs import GRAPHS, Size
from onehop.reproduce.rows import Row, missing

# Bandwidth of the paper's A100 80 GB SXM4, bytes a second.
_A100_BYTES_S = 2.0e12
_INDEX_BYTES, _ITEM_BYTES = 4, 4
_HEADS, _WIDTH = 2, 64

# Milliseconds on the A100 at F = 64 (GATv2 with 2 heads), float32: forward, backward; cached sums.
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


def gatv2_forward_bytes(size: Size) -> int:
    """Bytes of GATv2 forward without reuse in caches: each edge's index and source row, each node's rows."""
    row = _WIDTH * _ITEM_BYTES
    return size.edges * (_INDEX_BYTES + row) + size.nodes * (2 * row + 4 * _HEADS)


def gatv2_backward_bytes(size: Size) -> int:
    """Bytes of GATv2 backward without reuse: three gathers an edge over both directions."""
    row = _WIDTH * _ITEM_BYTES
    return size.edges * (2 * _INDEX_BYTES + 3 * row + 8 * _HEADS) + 8 * size.nodes * row


def sum_bytes(size: Size) -> int:
    """Bytes of a sum without reuse."""
    row = _WIDTH * _ITEM_BYTES
    return (size.edges + size.nodes) * (_INDEX_BYTES + row)


def rows() -> list[Row]:
    """The paper's times; the note of each has the floor of its bytes."""
    found = []
    for graph, (forward, backward) in _GATV2_MS.items():
        found.append(_row(f"GATv2 forward, F = {_WIDTH}, {graph}", forward, gatv2_forward_bytes, graph))
        found.append(_row(f"GATv2 backward, F = {_WIDTH}, {graph}", backward, gatv2_backward_bytes, graph))
    for graph, ms in _SUM_MS.items():
        found.append(_row(f"sum by cached matrices, F = {_WIDTH}, {graph}", ms, sum_bytes, graph))
    return found


def _row(figure: str, paper: float, moved: Callable[[Size], int], graph: str) -> Row:
    floor = moved(GRAPHS[graph]) / _A100_BYTES_S * 1e3
    return missing(
        figure,
        "ms",
        paper,
        f"Needs a GPU; without reuse in caches its bytes take {floor:.3g} ms at 2 TB/s, "
        f"{100 * floor / paper:.0f} % of the paper's time.",
    )
