"""The GPU plan of the variant "blocks" that is tried first: O(1), from a width alone.

Its constants follow from what the compilers report of registers; no GPU has timed them.
"""

from functools import lru_cache

from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

_LEAST_FEATURES = 16
_MOST_FEATURES = 128
# Each warp has so many of a window's result, 16 x features; with more, registers are spilled.
_FEATURES_PER_WARP = 16
_LEAST_WARPS = 2
# At 32 columns and 16 features a warp, every thread loads 32 bytes of a row.
_COLUMNS = 32


@lru_cache(maxsize=4096)
def default_blocks_plan(width: int) -> TritonPlan:
    """32 columns of a window at a time, and a warp for 16 features.

    Args:
        width: Columns of x; of attention those of a head, the wider of keys and values.
    """
    features = min(max(power_of_two(width), _LEAST_FEATURES), _MOST_FEATURES)
    return TritonPlan(
        block_edges=_COLUMNS,
        block_features=features,
        num_warps=max(features // _FEATURES_PER_WARP, _LEAST_WARPS),
        variant="blocks",
    )
