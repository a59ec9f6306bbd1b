"""Clouds of points, stored one after the other in a matrix, as searches between two sets take them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.native import CPU, address, extension

_MATRIX = 2
_INDICES = (torch.int64, torch.int32)
# Sums of squares of coordinates below this value are finite.
_LARGEST = 1e150


@dataclass(frozen=True, slots=True)
class Clouds:
    """Points and the clouds that they belong to.

    Attributes:
        points: [N, D], float64.
        bounds: [B + 1], int64: cloud b is rows ``bounds[b]`` to ``bounds[b + 1]``.
    """

    points: Tensor
    bounds: Tensor

    @classmethod
    def of(cls, name: str, points: Tensor, bounds: Tensor | None, bounds_name: str = "ptr") -> "Clouds":
        """Check points and their bounds, and return them as clouds.

        Args:
            name: The name that error messages use for the points.
            points: [N, D], or [N] for D = 1, real numbers on the CPU.
            bounds: [B + 1], int64 or int32, ascending from 0 to N; None means one cloud.
            bounds_name: The name that error messages use for the bounds.

        Raises:
            ArgumentError: A shape, dtype or device does not fit, or a coordinate is not below 1e150.
        """
        if not isinstance(points, Tensor) or points.layout is not torch.strided or not points.is_cpu:
            raise ArgumentError(f"{name}: expected a dense tensor on the CPU.")
        if points.dim() not in (1, _MATRIX) or points.is_complex() or points.dtype is torch.bool:
            raise ArgumentError(
                f"{name}: expected real numbers of shape [N, D] or [N], got {points.dtype} of shape "
                f"{list(points.shape)}."
            )
        points = points.detach().to(torch.float64)
        points = (points.unsqueeze(1) if points.dim() == 1 else points).contiguous()
        # Comparisons with NaN are false.
        small = (points.abs() < _LARGEST).all(1)
        if not small.all():
            row = int(small.int().argmin())
            raise ArgumentError(
                f"{name}: row {row} is not finite, or too large for squares: {points[row].tolist()}."
            )
        count = points.size(0)
        if bounds is None:
            return cls(points, torch.tensor([0, count], device=CPU))
        if bounds.dim() != 1 or bounds.dtype not in _INDICES or not bounds.is_cpu or not bounds.numel():
            raise ArgumentError(f"{bounds_name}: expected int64 or int32 of shape [B + 1] on the CPU.")
        bounds = bounds.to(torch.int64, copy=True).contiguous()  # checked and used values are the same
        if int(bounds[0]) or int(bounds[-1]) != count or bool((bounds.diff() < 0).any()):
            raise ArgumentError(
                f"{bounds_name}: expected numbers that ascend from 0 to the {count} rows of {name}."
            )
        return cls(points, bounds)

    def native(self) -> Any:
        """Return the clouds for native code; they are valid as long as ``self`` exists."""
        clouds = extension.PointClouds()
        clouds.points, clouds.bounds = address(self.points), address(self.bounds)
        clouds.clouds, clouds.dims = self.bounds.numel() - 1, self.points.size(1)
        return clouds

    @property
    def sizes(self) -> Tensor:
        """[B]: number of points in each cloud."""
        return self.bounds.diff()

    @property
    def of_points(self) -> Tensor:
        """[N]: number of the cloud of each point."""
        return torch.repeat_interleave(self.sizes)


def pair(x: Tensor, y: Tensor, ptr_x: Tensor | None, ptr_y: Tensor | None) -> tuple[Clouds, Clouds]:
    """Check points x, among which neighbours of points y are searched, and that the clouds match.

    Raises:
        ArgumentError: See :meth:`Clouds.of`; or the dimensions or numbers of clouds differ.
    """
    among = Clouds.of("x", x, ptr_x, "ptr_x")
    of = among if y is x and ptr_y is ptr_x else Clouds.of("y", y, ptr_y, "ptr_y")
    if among.points.size(1) != of.points.size(1):
        raise ArgumentError(
            f"x, y: expected the same dimension, got {among.points.size(1)} and {of.points.size(1)}."
        )
    if among.bounds.numel() != of.bounds.numel():
        raise ArgumentError(
            f"ptr_x, ptr_y: expected the same number of clouds, got {among.bounds.numel() - 1} and "
            f"{of.bounds.numel() - 1}."
        )
    return among, of
