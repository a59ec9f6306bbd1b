"""Searches point by point, in float64: the reference."""

import math

import torch
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


def images(pos: Tensor, cell: Tensor, pbc: tuple[bool, bool, bool], radius: float) -> list[tuple[int, ...]]:
    """Neighbours of atoms in a cell that repeats: destination, source, three shifts; sorted.

    All shifts within a bound are tried. The vector between two atoms is v = d + s @ cell, with |v| < radius
    and the difference d of their positions. So s @ cell is not longer than radius + |d|, and the number s[k]
    is the product of s @ cell with column k of the pseudoinverse of the vectors that repeat.
    """
    pos, cell = pos.double(), cell.double()
    repeating = [axis for axis in range(3) if pbc[axis]]
    apart = float(torch.cdist(pos, pos).max()) if len(pos) else 0.0
    most = [0, 0, 0]
    if repeating:
        lengths = torch.linalg.pinv(cell[repeating]).norm(dim=0).tolist()
        for axis, length in zip(repeating, lengths, strict=True):
            most[axis] = math.floor((radius + apart) * length * (1 + 1e-9) + 1e-9)
    shifts = torch.cartesian_prod(*(torch.arange(-count, count + 1) for count in most))
    offsets = (shifts[:, :1] * cell[0] + shifts[:, 1:2] * cell[1]) + shifts[:, 2:] * cell[2]
    short = offsets.norm(dim=1) <= (radius + apart) * (1 + 1e-9)
    found = []
    between = pos.unsqueeze(0) - pos.unsqueeze(1)  # [destination, source]
    for shift, offset in zip(map(tuple, shifts[short].tolist()), offsets[short], strict=True):
        vector = between + offset
        squares = vector.square()
        near = (squares[..., 0] + squares[..., 1]) + squares[..., 2] < radius * radius
        if shift == (0, 0, 0):
            near.fill_diagonal_(False)
        found += [(*pair, *shift) for pair in near.nonzero().tolist()]
    return sorted(found)
