"""Farthest point sampling: each point that is picked is the farthest from those before."""

import math

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.points.clouds import Clouds


def farthest_points(
    x: Tensor, ptr: Tensor | None = None, ratio: float = 0.5, *, random_start: bool = True
) -> Tensor:
    """Picks the share ``ratio`` of each cloud, rounded up.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        ptr: [B + 1], int64: the bounds of the clouds; None means one cloud.
        ratio: The share, above 0 and at most 1.
        random_start: Whether the first point of a cloud is drawn by torch's generator; else it is the first.

    Returns:
        [S], int64: numbers of points, cloud after cloud, in the order in which they were picked.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, a coordinate is not finite, or ``ratio`` is out
            of range.

    Source: Qi et al., PointNet++ (arXiv 1706.02413), section 3.2.
    """
    if not 0 < ratio <= 1:
        raise ArgumentError(f"ratio: expected a number above 0 and at most 1, got {ratio}.")
    clouds = Clouds.of("x", x, ptr)
    sizes, firsts = clouds.sizes, clouds.bounds[:-1]
    # As pyg-lib rounds.
    counts = (sizes.float() * ratio).ceil().long()
    starts = torch.zeros_like(sizes)
    if random_start:
        starts = (torch.rand(sizes.shape, dtype=torch.float64, device="cpu") * sizes).long()
    picked = torch.empty(int(counts.sum()), dtype=torch.int64, device="cpu")
    ends = counts.cumsum(0)
    for group in _of_similar_size(sizes):
        found = _picked(clouds.points, firsts[group], sizes[group], starts[group], int(counts[group].max()))
        for cloud, numbers in zip(group.tolist(), found, strict=True):
            picked[ends[cloud] - counts[cloud] : ends[cloud]] = numbers[: counts[cloud]]
    return picked


def _of_similar_size(sizes: Tensor) -> list[Tensor]:
    """Groups of clouds whose sizes differ by less than a factor of two; those without points are in none."""
    classes = (sizes.double() + 0.5).log2().floor().masked_fill(sizes == 0, -1)
    return [(classes == each).nonzero()[:, 0] for each in classes.unique().tolist() if each >= 0]


def _picked(points: Tensor, firsts: Tensor, sizes: Tensor, starts: Tensor, count: int) -> Tensor:
    """[B, count]: the numbers of points that are picked in clouds of similar sizes."""
    place = torch.arange(int(sizes.max()), device="cpu")
    # Places behind a cloud's end are its last point once more, and are never the farthest.
    within = torch.minimum(place, sizes.unsqueeze(1) - 1)
    clouds = points[firsts.unsqueeze(1) + within]
    distances = torch.full(within.shape, math.inf, dtype=points.dtype, device="cpu")
    distances.masked_fill_(place >= sizes.unsqueeze(1), -1.0)
    every = torch.arange(sizes.numel(), device="cpu")
    picked = torch.empty(sizes.numel(), count, dtype=torch.int64, device="cpu")
    current, difference = starts, torch.empty_like(clouds)
    for number in range(count):
        picked[:, number] = current
        torch.sub(clouds, clouds[every, current].unsqueeze(1), out=difference)
        torch.minimum(distances, difference.square_().sum(2), out=distances)
        current = distances.argmax(1)
    return picked + firsts.unsqueeze(1)
