"""Farthest point sampling: each point that is picked is the farthest from the points picked before."""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.native import CPU, address, extension, threads
from onehop.points.clouds import Clouds


def farthest_points(
    x: Tensor, ptr: Tensor | None = None, ratio: float = 0.5, *, random_start: bool = True
) -> Tensor:
    """Pick the share ``ratio`` of each cloud's points, rounded up.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        ptr: [B + 1], int64: the bounds of the clouds; None means one cloud.
        ratio: The share of points, above 0 and at most 1.
        random_start: Whether torch's generator draws the first pick of each cloud; if not, it is the first
            point.

    Returns:
        [S], int64: numbers of points, cloud after cloud, in the order in which they were picked, each once.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, a coordinate is not finite, or ``ratio`` is out
            of range.

    Source: Qi et al., PointNet++ (arXiv 1706.02413), section 3.2.
    """
    if not 0 < ratio <= 1:
        raise ArgumentError(f"ratio: expected a number above 0 and at most 1, got {ratio}.")
    clouds = Clouds.of("x", x, ptr)
    sizes = clouds.sizes
    # Round as pyg-lib does; without the minimum, the result could exceed the size of a cloud with more points
    # than single precision can count.
    counts = (sizes.float() * ratio).ceil().long().minimum(sizes)
    starts = torch.zeros_like(sizes)
    if random_start:
        starts = (torch.rand(sizes.shape, dtype=torch.float64, device=CPU) * sizes).long()
    picked = torch.empty(int(counts.sum()), dtype=torch.int64, device=CPU)
    extension.farthest_points(clouds.native(), address(starts), address(counts), address(picked), threads())
    return picked
