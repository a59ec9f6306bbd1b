"""Naive product of scaled statistics: all scaled statistics are concatenated and multiplied by a matrix."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def scaled_statistics(
    reduced: Mapping[str, Tensor], statistics: Sequence[str], scales: Tensor, weight: Tensor
) -> Tensor:
    """Multiply statistics of rows by each of their scales, and then by a matrix.

    Args:
        reduced: By name, [N, F] each: the values from which the statistics are computed.
        statistics: Names in ``reduced``; or "var" or "std", which are computed from its "mean" and "squares"
            (the mean of the squares). PyG's standard deviation clamps the variance at 1e-5, and is 0 up to
            there.
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
