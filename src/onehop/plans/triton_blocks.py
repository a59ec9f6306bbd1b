"""The first GPU plan to try of the variant "blocks": O(1), from a width only.

Its constants follow from the compilers' reports of registers; they have not been timed on a GPU.
"""

from functools import lru_cache

from onehop.plans.triton import TritonPlan
from onehop.plans.triton_default import power_of_two

_LEAST_FEATURES = 16
_MOST_FEATURES = 128
# Each warp holds this part of a window's result, 16 x features; with more, registers are spilled.
_FEATURES_PER_WARP = 16
_LEAST_WARPS = 2
# At 32 columns and 16 features a warp, every thread loads 32 bytes of a row.
_COLUMNS = 32


@lru_cache(maxsize=4096)
def default_blocks_plan(width: int) -> TritonPlan:
    """32 columns of a window at a time, and a warp for 16 features.

    Args:
        width: Columns of x; for attention those of a head, the wider of keys and values.
    """
    features = min(max(power_of_two(width), _LEAST_FEATURES), _MOST_FEATURES)
    return TritonPlan(
        block_edges=_COLUMNS,
        block_features=features,
        num_warps=max(features // _FEATURES_PER_WARP, _LEAST_WARPS),
        variant="blocks",
    )
