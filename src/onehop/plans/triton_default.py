"""The GPU plan for untuned cases: O(1), from sizes and mean degree only.

Its constants follow from the hardware's documented sizes and from the compilers' reports of registers and
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
# One for all widths, so that they share a work list. A program reads as much at a time of short rows as of
# a long
# one, but has no lanes to add up; rows of more edges would keep the others of their program waiting.
_SHORT_EDGES = 32


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
