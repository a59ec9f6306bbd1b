"""The GPU plan of attention for untuned cases: O(1), from sizes only.

Its constants follow from the compilers' reports of registers; they have not been timed on a GPU.
"""

from functools import lru_cache

from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

_WARP = 32
# The backward sweeps hold about six tiles in 32 bits; with eight numbers of each, a thread stays within 128
# registers, and 16-bit rows are still loaded 16 bytes at a time.
_NUMBERS_PER_THREAD = 8
# Of 16 bits twice as many, or half as many bytes would be on their way.
_NUMBERS_OF_16_BITS = 16
# In double precision, and with edge features, a thread holds one load at a time.
_LOADED_BYTES = 16
# All heads of a row are processed together up to this width, so that edges are read once.
_MOST_FEATURES = 512
# More would be serialised where the lanes of a row are combined.
_WARPS = 2
_MOST_LANES = 32
_MOST_WARPS = 16
# Writing and reading back a piece's sums is less than one percent of reading its edges' rows.
_SPLIT_EDGES = 256
# One for all widths, so that they share a work list. A program reads as much at a time of short rows as of
# a long
# one, but has no lanes to add up; rows of more edges would keep the others of their program waiting.
_SHORT_EDGES = 32


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
        numbers = _NUMBERS_OF_16_BITS if itemsize < 4 else _NUMBERS_PER_THREAD
    per_warp = _WARP * numbers
    of_head = power_of_two(width)
    features = max(min(power_of_two(heads) * of_head, _MOST_FEATURES), of_head)
    # A row that is wider than the tile gets more threads.
    warps = max(_WARPS, min(features // per_warp, _MOST_WARPS))
    if _WARP * _LOADED_BYTES // itemsize < of_head <= per_warp:
        # Triton gives a head that one load of a warp does not cover to two, which add up its score through
        # shared memory, at a barrier. A program of one warp loads twice; it reads the edges for each head.
        features, warps = of_head, 1
    lanes = min(max(per_warp * warps // features, 1), _MOST_LANES)
    return TritonPlan(
        split_edges=_SPLIT_EDGES,
        short_edges=_SHORT_EDGES,
        rows_per_program=lanes,
        block_edges=lanes,
        block_features=min(features, 4096),
        num_warps=warps,
    )
