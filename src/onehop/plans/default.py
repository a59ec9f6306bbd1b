"""The CPU plan for untuned cases: computed in O(1) from sizes only, and safe."""

from functools import lru_cache

from onehop import thresholds
from onehop.plans.cpu import CpuPlan
from onehop.processor import caches, last_level_cache_bytes

_LEAST_EDGES, _MOST_EDGES = 1024, 8192
# Number of pieces per graph that balances well without measurable scheduling overhead.
_PIECES = 128

# Short rows need a longer prefetch distance; with this distance, long rows would evict one another. Data in
# the L2 cache arrive soon. (Measured: docs/explanation/kernels.md.)
_PREFETCH_SHORT, _PREFETCH_LONG = 64, 32
_SHORT_ROW_BYTES = 256

# An L1 cache of at least this size can hold prefetched rows; in a smaller one, prefetched rows evict data in
# use. (Measured on one processor with 32 KiB and one with 48 KiB: docs/explanation/tuner.md.)
_ROOMY_FIRST_CACHE = 48 << 10

# Data in the last-level cache arrive soon too, so rows need not be prefetched so early that they fill the L1
# cache. A quarter of the L1 cache is enough (rows of 1 and 2 KiB are 1.07 to 1.15 times as fast as with 32
# rows).
_AHEAD_SHARE, _LEAST_PREFETCH = 4, 4

# Tiles pay off if every source row is read many times, and if a row's part is at least a few cache lines
# long. (At width 256 on a busy machine: about 1.4 times faster at 190 edges per source, no gain at 14, a loss
# at 4.)
_TILED_DEGREE = 32
_LEAST_TILE_BYTES = 128
_CACHE_SHARE = 0.75


def default_plan(sources: int, rows: int, edges: int, width: int, itemsize: int) -> CpuPlan:
    """Return a plan with balanced items, one thread for tiny work, and tiles if they make x fit the cache.

    Args:
        sources: Number of rows of x.
        rows: Number of rows of the result.
        edges: Number of edges.
        width: Number of columns.
        itemsize: Bytes of a number of x.
    """
    return _plan(sources, rows, edges, width, itemsize, edges * width < thresholds.now.serial_work)


@lru_cache(maxsize=4096)
def _plan(sources: int, rows: int, edges: int, width: int, itemsize: int, serial: bool) -> CpuPlan:
    row_bytes = width * itemsize
    fits_second_cache = sources * row_bytes <= caches().get(2, 0)
    return CpuPlan(
        edges_per_item=min(max(edges // _PIECES, _LEAST_EDGES), _MOST_EDGES),
        prefetch=_prefetch(sources, row_bytes, fits_second_cache),
        # Rows that are in the L2 cache need not be prefetched into it (saves 6 to 9 % on 2,708 nodes, widths
        # 32 to 128).
        prefetch_hint="L1" if fits_second_cache or caches().get(1, 0) >= _ROOMY_FIRST_CACHE else "L2",
        column_tile=fitting_tile(sources, edges, width, itemsize),
        # A result that the caches cannot hold should bypass them.
        nontemporal=rows * row_bytes > last_level_cache_bytes() > 0,
        threads=1 if serial else 0,
    )


def _prefetch(sources: int, row_bytes: int, fits_second_cache: bool) -> int:
    """Return the prefetch distance in edges."""
    if row_bytes <= _SHORT_ROW_BYTES:
        return _PREFETCH_LONG if fits_second_cache else _PREFETCH_SHORT
    if sources * row_bytes > _CACHE_SHARE * last_level_cache_bytes():
        return _PREFETCH_LONG
    rows = caches().get(1, 0) // _AHEAD_SHARE // row_bytes
    return min(max(rows, _LEAST_PREFETCH), _PREFETCH_LONG)


def fitting_tile(sources: int, edges: int, width: int, itemsize: int) -> int:
    """Return the widest tile for which all sources fit the last-level cache; 0 if tiles would not pay off."""
    cache = last_level_cache_bytes()
    if sources * width * itemsize <= cache or edges < _TILED_DEGREE * sources:
        return 0
    line = 64 // itemsize
    widest = int(_CACHE_SHARE * cache) // (sources * itemsize) // line * line
    if widest * itemsize < _LEAST_TILE_BYTES:
        return 0
    passes = -(-width // widest)
    return -(-width // (passes * line)) * line
