"""Searches in clouds of points: the nearest points of each point, and all within a distance.

The results are exact. Distances are Euclidean, of the given coordinates in float64, with squares added up in
the order of the dimensions. Among points at the same distance, points with lower numbers come first. A k-d
tree of each cloud finds the points in few dimensions, and products of blocks of points in many dimensions
(``csrc/points``).
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError, integer
from onehop.native import CPU, address, extension, threads
from onehop.points.clouds import Clouds, pair

# Number of dimensions from which on products are faster: measured with 4,096 and 20,000 points, k = 16.
_MANY_DIMENSIONS = 20
# Number of products in a block.
_BLOCK = 1 << 18


def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    *,
    cosine: bool = False,
) -> Tensor:
    """Find, for each point of y, the k nearest points of x in its cloud, or all if there are fewer.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        k: Number of neighbours.
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: the bounds of the clouds of y.
        cosine: Whether to use cosine similarity instead of distance. The similarity of a point at 0 is 0.

    Returns:
        [2, E], int64: numbers of points of y, which ascend, and of x, the nearest first.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, a coordinate is not finite, or k is negative.
    """
    wanted = _wanted("k", k)
    among, of = pair(x, y, ptr_x, ptr_y)
    if cosine:
        among, of = _on_sphere(among, of)
    return _found(among, of, wanted)[1]


def within(
    x: Tensor,
    y: Tensor,
    r: float,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    *,
    most: int | None = None,
    omit_self: bool = False,
) -> Tensor:
    """Find, for each point of y, the points of x in its cloud that are nearer than a distance.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        r: The distance. A point at exactly this distance is not found, as in pyg-lib.
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: the bounds of the clouds of y.
        most: Maximum number of points that are kept for each point; the nearest are kept. (PyG's
            documentation calls the choice random.) None means all.
        omit_self: Whether point i of x is excluded as a neighbour of point i of y.

    Returns:
        [2, E], int64, in the form of :func:`knn`.

    Raises:
        ArgumentError: See :func:`knn`; or ``r`` or ``most`` is negative.
    """
    wanted = _wanted("most", most, r, omit_self)
    return _found(*pair(x, y, ptr_x, ptr_y), wanted)[1]


def neighbours(
    name: str, x: Tensor, k: int | None = None, r: float = math.inf, ptr: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the neighbours of each point in its cloud, without itself, as compressed sparse rows.

    Args:
        name: The name that error messages use for the points.
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        k: Maximum number of neighbours for each point; the nearest are kept. None means all.
        r: Neighbours are nearer than this distance.
        ptr: [B + 1], int64: the bounds of the clouds; None means one cloud.

    Returns:
        [N + 1] and [E], int64: the bounds of each point's neighbours, and their numbers, the nearest first.

    Raises:
        ArgumentError: See :func:`within`.
    """
    wanted = _wanted("k", k, r, omit_self=True, r_name="radius")
    points = Clouds.of(name, x, ptr)
    bounds, pairs = _found(points, points, wanted)
    return bounds, pairs[1]


def nearest(x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None) -> Tensor:
    """Find, for each point of x, the nearest point of y in its cloud.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: the bounds of the clouds of y.

    Returns:
        [N], int64: numbers of points of y.

    Raises:
        ArgumentError: See :func:`knn`; or a cloud has points of x and none of y.
    """
    of, among = pair(x, y, ptr_x, ptr_y)
    alone = (among.sizes == 0) & (of.sizes > 0)
    if alone.any():
        raise ArgumentError(f"y: cloud {int(alone.int().argmax())} has no point, and points of x are in it.")
    return _found(among, of, _wanted("k", 1))[1][1].clone()


def _wanted(
    name: str, most: int | None, r: float = math.inf, omit_self: bool = False, r_name: str = "r"
) -> Any:
    """Return the search parameters: maximum number per point, distance, and whether to omit itself."""
    if math.isnan(r) or r < 0:
        raise ArgumentError(f"{r_name}: expected at least 0, got {r}.")
    if most is not None and (most := integer(name, most, None)) < 0:
        raise ArgumentError(f"{name}: expected at least 0, got {most}.")
    wanted = extension.WantedPoints()
    # The square of a large distance becomes infinity.
    wanted.most, wanted.squared, wanted.omit_self = -1 if most is None else most, r * r, omit_self
    return wanted


def _found(among: Clouds, of: Clouds, wanted: Any) -> tuple[Tensor, Tensor]:
    """Return [M + 1], the bounds of each point's neighbours, and [2, E], the pairs."""
    found, rows = extension.FoundPoints(), of.points.size(0)
    if among.points.numel() and of.points.numel() and wanted.most:
        if among.points.size(1) < _MANY_DIMENSIONS:
            extension.search_trees(among.native(), of.native(), wanted, found, threads())
        else:
            _search_products(among, of, wanted, found)
    bounds = torch.empty(rows + 1, dtype=torch.int64, device=CPU)
    pairs = torch.empty(2, found.pairs, dtype=torch.int64, device=CPU)
    found.write(rows, address(bounds), address(pairs[1]), address(pairs[0]), threads())
    return bounds, pairs


def _search_products(among: Clouds, of: Clouds, wanted: Any, found: Any) -> None:
    """Search by products of blocks of points with all points of their cloud, and add to ``found``."""
    # Relative to the middle of a cloud, products are small, and so are their rounding errors.
    middles = torch.zeros(among.sizes.numel(), among.points.size(1), dtype=torch.float64, device=CPU)
    middles.index_add_(0, among.of_points, among.points).div_(among.sizes.clamp(min=1).unsqueeze(1))
    x, y = (each.points - middles[each.of_points] for each in (among, of))
    norms_x, norms_y = x.square().sum(1), y.square().sum(1)
    block = extension.PointProducts()
    # Each of these operations has an error of at most half of eps of the largest product; see Higham,
    # Accuracy and Stability of Numerical Algorithms, section 3.1. Eight times this error is used.
    block.error = 4 * (x.size(1) + 8) * torch.finfo(torch.float64).eps
    bounds = zip(among.bounds.tolist(), of.bounds.tolist(), strict=True)
    for cloud, ((first, begin), (last, end)) in enumerate(itertools.pairwise(bounds)):
        block.cloud, block.norms_x = cloud, address(norms_x[first:])
        step = max(_BLOCK // max(last - first, 1), 1)
        for row in range(begin, end if last > first else begin, step):
            rows = y[row : min(row + step, end)]
            products = torch.mm(rows, x[first:last].t())
            block.products, block.norms_y = address(products), address(norms_y[row:])
            block.first, block.rows = row, rows.size(0)
            extension.search_products(among.native(), of.native(), block, wanted, found, threads())


def _on_sphere(among: Clouds, of: Clouds) -> tuple[Clouds, Clouds]:
    """Scale points to distance 1 from 0; points at 0 become orthogonal to all others."""
    points = [each.points for each in (among, of)]
    norms = [each.norm(dim=1, keepdim=True) for each in points]
    zeros = [norm == 0 for norm in norms]
    x, y = (each / norm.masked_fill(zero, 1) for each, norm, zero in zip(points, norms, zeros, strict=True))
    if zeros[0].any() or zeros[1].any():
        x = torch.cat([x, zeros[0].double(), torch.zeros_like(norms[0])], 1)
        y = torch.cat([y, torch.zeros_like(norms[1]), zeros[1].double()], 1)
    return Clouds(x, among.bounds), Clouds(y, of.bounds)
