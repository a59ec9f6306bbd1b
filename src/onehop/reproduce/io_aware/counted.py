"""The IO-aware kernels' published times on a GPU, beside the minimum times of their bytes."""

from collections.abc import Callable, Iterator

from onehop.reproduce.io_aware.memory import GRAPHS as GRAPHS, Size as Size
from onehop.reproduce.tables import Row, row

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
