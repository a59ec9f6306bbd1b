"""Values to try for each field of a plan, from the graph's statistics and the caches' sizes."""

import torch

from onehop import processor, thresholds
from onehop.graph import Graph
from onehop.plans import CpuPlan
from onehop.plans.cpu import PREFETCH_HINTS
from onehop.plans.default import default_plan, fitting_tile
from onehop.tuner.operations import Operation

Axes = dict[str, tuple[int | bool | str, ...]]

_PREFETCHES = (0, 4, 8, 16, 32, 64)
_ITEMS = (512, 2048, 8192, 32768)
_LINE_BYTES = 64
# Narrower row tiles cost more in jumps than they save.
_LEAST_TILE_BYTES = 128
# Orders do not pay off on small graphs, or if a cache (of one thread, or of the GPU) holds x.
LEAST_ORDERED_EDGES = 1 << 15
ORDERS = ("community", "rcm", "degree")
# One thread is tried up to this many times the work below which the default uses one thread.
_SERIAL_RANGE = 32


def start(graph: Graph, operation: Operation, width: int, dtype: torch.dtype) -> CpuPlan:
    """Return the default plan, where every search starts."""
    return default_plan(*_sizes(graph, operation), graph.num_edges, width, dtype.itemsize)


def _sizes(graph: Graph, operation: Operation) -> tuple[int, int]:
    """Return the number of rows of x and of the result."""
    sources, rows = graph.num_src, graph.num_dst
    return (rows, sources) if operation.transposed else (sources, rows)


def axes(
    graph: Graph,
    operation: Operation,
    width: int,
    dtype: torch.dtype,
    threads: int,
    vector_bytes: int,
    lossy: bool,
) -> Axes:
    """Return the values to try for each relevant field; the most influential fields come first.

    Args:
        graph: The graph.
        operation: The operation and its direction.
        width: Number of columns.
        dtype: Dtype of the features.
        threads: torch's number of threads.
        vector_bytes: Size of the kernels' vector registers in bytes.
        lossy: Whether features may be rounded to 16 bits.
    """
    default = start(graph, operation, width, dtype)
    sources, rows = _sizes(graph, operation)
    row_bytes, edges = width * dtype.itemsize, graph.num_edges
    choices: Axes = {}
    if lossy and dtype == torch.float32:
        choices["storage"] = ("same", "bfloat16")
    if edges >= LEAST_ORDERED_EDGES and sources * row_bytes > processor.caches().get(2, 0):
        choices["ordering"] = ("none", *ORDERS)
    choices["column_tile"] = _tiles(sources, edges, width, dtype.itemsize, default.column_tile)
    choices["prefetch"] = tuple(sorted({*_PREFETCHES, default.prefetch}))
    choices["prefetch_hint"] = PREFETCH_HINTS
    # The next operation reads a cached result from the cache; no measurement here would show this gain.
    if row_bytes % _LINE_BYTES == 0 and rows * row_bytes > processor.last_level_cache_bytes() // 2:
        choices["nontemporal"] = (False, True)
    vectors = -(-row_bytes // vector_bytes)
    # Half of the registers and a quarter; other values do not divide rows more evenly.
    choices["register_block"] = (0, *(block for block in (8, 4) if vectors > block))
    # With fewer pieces than threads, some threads would be idle.
    items = [size for size in _ITEMS if edges // size >= 4 * threads or size == default.edges_per_item]
    choices["edges_per_item"] = tuple(sorted({*items, default.edges_per_item}))
    if threads > 1 and edges * width < _SERIAL_RANGE * thresholds.now.serial_work:
        choices["threads"] = (0, 1)
    return {
        name: values
        for name, values in choices.items()
        if name in operation.axes and set(values) != {values[0]}
    }


def _tiles(sources: int, edges: int, width: int, itemsize: int, default: int) -> tuple[int, ...]:
    """Return 0 for all columns at once, and widths of even parts whose rows of x fit a cache better."""
    line = _LINE_BYTES // itemsize
    tiles = {0, default, fitting_tile(sources, edges, width, itemsize)}
    for parts in (2, 3, 4, 8):
        tile = -(-width // (parts * line)) * line
        if tile * itemsize >= _LEAST_TILE_BYTES and tile < width:
            tiles.add(tile)
    return tuple(sorted(tiles))
