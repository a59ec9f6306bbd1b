"""The GPU plans for untuned cases, computed in O(1) from sizes and mean degree only.

The constants follow from the hardware's documented sizes and from the compilers' reports of registers and
loads; they have not been timed on a GPU.
"""

from functools import lru_cache

from onehop.plans.triton import TritonPlan

_WARP = 32
# A thread loads 16 bytes at a time, and has up to four loads in flight to hide latency. The number of values
# is limited by its registers, which hold two 32-bit sums per value and the loaded data.
_BYTES_PER_THREAD = 64
_NUMBERS_PER_THREAD = 16
# Bytes of a row's part in a program: as much as one warp loads at a time.
_ROW_BYTES = 16 * _WARP
# From this many edges per row on, programs of four warps have enough work.
_MANY_EDGES = 64
_MOST_LANES = 32
# Writing and reading back a piece's sums is less than one percent of reading its edges' rows.
_SPLIT_EDGES = 256
# The same number for all widths, so that they share a work list. A program reads as much of short rows at a
# time as of a long one, but has no lanes to add up. Longer rows would keep the other rows of their program
# waiting.
_SHORT_EDGES = 32

# For attention. The backward sweeps hold about six tiles in 32 bits. With eight values of each, a thread
# stays within 128 registers, and 16-bit rows are still loaded 16 bytes at a time.
_NUMBERS_OF_ATTENTION = 8
# Twice as many 16-bit values; otherwise half as many bytes would be in flight.
_NUMBERS_OF_16_BITS = 16
# In double precision, and with edge features, a thread holds one load at a time.
_LOADED_BYTES = 16
# All heads of a row are processed together up to this width, so that edges are read once.
_MOST_FEATURES = 512
# Larger numbers would be serialised where the lanes of a row are combined.
_WARPS = 2
_MOST_WARPS = 16


@lru_cache(maxsize=4096)
def default_triton_plan(width: int, itemsize: int, rows: int, edges: int) -> TritonPlan:
    """Return a plan with tiles of at most 64 bytes and 16 numbers per thread; rows over 256 edges are split.

    Args:
        width: Number of columns.
        itemsize: Bytes of a number.
        rows: Number of rows of the result.
        edges: Number of edges.
    """
    features = min(power_of_two(width), max(_ROW_BYTES // itemsize, 1))
    warps = 4 if edges >= _MANY_EDGES * rows else 2
    numbers = min(_BYTES_PER_THREAD // itemsize, _NUMBERS_PER_THREAD)
    lanes = numbers * _WARP * warps // features
    return _plan(lanes, features, warps)


@lru_cache(maxsize=4096)
def default_attention_plan(heads: int, width: int, itemsize: int, edges: bool) -> TritonPlan:
    """Return a plan with 8 numbers per thread, all heads of a row together, and rows over 256 edges split.

    Args:
        heads: H.
        width: Number of columns of a head; the larger of keys and values.
        itemsize: Bytes of a number.
        edges: Whether edges have features, which need registers too.
    """
    numbers = _LOADED_BYTES // itemsize
    if not edges and itemsize < 8:
        numbers = _NUMBERS_OF_16_BITS if itemsize < 4 else _NUMBERS_OF_ATTENTION
    per_warp = _WARP * numbers
    of_head = power_of_two(width)
    features = max(min(power_of_two(heads) * of_head, _MOST_FEATURES), of_head)
    # A row wider than the tile gets more threads.
    warps = max(_WARPS, min(features // per_warp, _MOST_WARPS))
    if _WARP * _LOADED_BYTES // itemsize < of_head <= per_warp:
        # If one load of a warp does not cover a head, Triton gives the head to two warps, which add up its
        # score through shared memory, at a barrier. A program of one warp loads twice instead, and reads the
        # edges for each head.
        features, warps = of_head, 1
    return _plan(per_warp * warps // features, min(features, 4096), warps)


def _plan(lanes: int, features: int, warps: int) -> TritonPlan:
    lanes = min(max(lanes, 1), _MOST_LANES)
    return TritonPlan(
        split_edges=_SPLIT_EDGES,
        short_edges=_SHORT_EDGES,
        rows_per_program=lanes,
        block_edges=lanes,
        block_features=features,
        num_warps=warps,
    )


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not smaller than the number."""
    return 1 << max(number - 1, 0).bit_length()
