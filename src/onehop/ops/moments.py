"""Variance and standard deviation from means, by PyG's formulas."""

import math

from torch import Tensor

_LEAST = 1e-5


def variance(mean: Tensor, squares: Tensor) -> Tensor:
    """Return the variance, from the mean and the mean of the squares."""
    return squares - mean * mean


def deviation(mean: Tensor, squares: Tensor) -> Tensor:
    """Return the standard deviation; 0 up to a variance of 1e-5 (as in PyG's ``StdAggregation``)."""
    out = variance(mean, squares).clamp(min=_LEAST).sqrt()
    return out.masked_fill(out <= math.sqrt(_LEAST), 0.0)
