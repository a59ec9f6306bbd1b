"""Naive product of scaled statistics: all of them side by side, times a matrix."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def scaled_statistics(
    reduced: Mapping[str, Tensor], statistics: Sequence[str], scales: Tensor, weight: Tensor
) -> Tensor:
    """Statistics of rows, times each of their scales, times a matrix.

    Args:
        reduced: [N, F] each: what statistics are made of, by name.
        statistics: Names in it, or "var" or "std", which are made of its "mean" and "squares" (the mean of
            the squares). PyG's standard deviation has a least variance of 1e-5, and is 0 up to there.
        scales: [N, S].
        weight: [S, statistics * F, M].

    Returns:
        [N, M].
    """
    made = []
    for name in statistics:
        if name not in ("var", "std"):
            made.append(reduced[name])
            continue
        variance = reduced["squares"] - reduced["mean"] * reduced["mean"]
        if name == "std":
            least = variance.clamp(min=1e-5).sqrt()
            variance = least.masked_fill(least <= 1e-5**0.5, 0.0)
        made.append(variance)
    side = torch.cat(made, 1)
    joined = torch.cat([side * scale.unsqueeze(1) for scale in scales.unbind(1)], 1)
    return joined @ weight.flatten(0, 1)
