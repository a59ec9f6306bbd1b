"""The GPU plans for untuned cases: O(1), from sizes and mean degree only.

Their constants follow from the hardware's documented sizes and from the compilers' reports of registers and
loads; they have not been timed on a GPU.
"""

from functools import lru_cache

from onehop.plans.triton import TritonPlan

_WARP = 32
# A thread loads 16 bytes at a time, and has up to four such loads in flight, to hide latency; for no more
# numbers than it has registers for: two 32-bit sums for each, and the loaded data.
_BYTES_PER_THREAD = 64
_NUMBERS_PER_THREAD = 16
# A row's part in a program: the amount that one warp loads at a time.
_ROW_BYTES = 16 * _WARP
# From this many edges a row on, programs of four warps have enough work.
_MANY_EDGES = 64
_MOST_LANES = 32
# Writing and reading back a piece's sums is less than one percent of reading its edges' rows.
_SPLIT_EDGES = 256
# One for all widths, so that they share a work list. A program reads as much at a time of short rows as of a
# long one, but has no lanes to add up; rows of more edges would keep the others of their program waiting.
_SHORT_EDGES = 32

# For attention. The backward sweeps hold about six tiles in 32 bits; with eight numbers of each, a thread
# stays within 128 registers, and 16-bit rows are still loaded 16 bytes at a time.
_NUMBERS_OF_ATTENTION = 8
# Of 16 bits twice as many, or half as many bytes would be on their way.
_NUMBERS_OF_16_BITS = 16
# In double precision, and with edge features, a thread holds one load at a time.
_LOADED_BYTES = 16
# All heads of a row are processed together up to this width, so that edges are read once.
_MOST_FEATURES = 512
# More would be serialised where the lanes of a row are combined.
_WARPS = 2
_MOST_WARPS = 16


@lru_cache(maxsize=4096)
def default_triton_plan(width: int, itemsize: int, rows: int, edges: int) -> TritonPlan:
    """Tiles of at most 64 bytes and 16 numbers a thread; rows longer than 256 edges are split.

    Args:
        width: Columns.
        itemsize: Bytes of a number.
        rows: Rows of the result.
        edges: Edges.
    """
    features = min(power_of_two(width), max(_ROW_BYTES // itemsize, 1))
    warps = 4 if edges >= _MANY_EDGES * rows else 2
    numbers = min(_BYTES_PER_THREAD // itemsize, _NUMBERS_PER_THREAD)
    lanes = numbers * _WARP * warps // features
    return _plan(lanes, features, warps)


@lru_cache(maxsize=4096)
def default_attention_plan(heads: int, width: int, itemsize: int, edges: bool) -> TritonPlan:
    """Tiles of eight numbers a thread, all heads of a row together, rows longer than 256 edges cut.

    Args:
        heads: H.
        width: Columns of a head; the wider of keys and values.
        itemsize: Bytes of a number.
        edges: Whether edges have features, which need registers too.
    """
    numbers = _LOADED_BYTES // itemsize
    if not edges and itemsize < 8:
        numbers = _NUMBERS_OF_16_BITS if itemsize < 4 else _NUMBERS_OF_ATTENTION
    per_warp = _WARP * numbers
    of_head = power_of_two(width)
    features = max(min(power_of_two(heads) * of_head, _MOST_FEATURES), of_head)
    # A row that is wider than the tile gets more threads.
    warps = max(_WARPS, min(features // per_warp, _MOST_WARPS))
    if _WARP * _LOADED_BYTES // itemsize < of_head <= per_warp:
        # Triton gives a head that one load of a warp does not cover to two, which add up its score through
        # shared memory, at a barrier. A program of one warp loads twice; it reads the edges for each head.
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
    """The smallest power of two that is not smaller."""
    return 1 << max(number - 1, 0).bit_length()
