"""The dtype that sums are kept in."""

import torch


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which sums of this one are kept: float64 for float64, float32 for all others."""
    return torch.float64 if dtype is torch.float64 else torch.float32
