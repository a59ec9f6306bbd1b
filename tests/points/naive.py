"""Searches point by point, in float64: the reference."""

import math

from torch import Tensor


def squared(a: Tensor, b: Tensor) -> float:
    """The squared distance, added up in the order of the dimensions."""
    total = 0.0
    for one, other in zip(a.double().tolist(), b.double().tolist(), strict=True):
        total += (one - other) ** 2
    return total


def dissimilarity(a: Tensor, b: Tensor) -> float:
    """1 minus the cosine similarity, which is 0 where a point is at 0."""
    norms = float(a.double().norm() * b.double().norm())
    return 1 - float(a.double() @ b.double()) / norms if norms else 1.0


def neighbours(
    x: Tensor,
    y: Tensor,
    most: int | None,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    *,
    r: float = math.inf,
    omit_self: bool = False,
    distance=squared,
) -> list[tuple[int, int]]:
    """Pairs of a point of y and one of x, as ``knn`` and ``within`` return them."""
    bounds_x, bounds_y = (
        [0, len(each)] if ptr is None else ptr.tolist() for each, ptr in ((x, ptr_x), (y, ptr_y))
    )
    found = []
    for cloud in range(len(bounds_x) - 1):
        for row in range(bounds_y[cloud], bounds_y[cloud + 1]):
            near = []
            for number in range(bounds_x[cloud], bounds_x[cloud + 1]):
                away = distance(x[number], y[row])
                if away < r * r and not (omit_self and number == row):
                    near.append((away, number))
            found += [(row, number) for _, number in sorted(near)[:most]]
    return found
