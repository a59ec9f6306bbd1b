"""Searches in clouds of points: the nearest points of each point, and all within a distance.

They are exact. A distance is Euclidean, of the given coordinates in float64, its squares added up in the
order of the dimensions; of points at the same distance those with lower numbers come first. Candidates come
from SciPy's k-d tree in few dimensions, and from products of blocks of points in many. Both tell a bound
below which no other point can be. Where the last neighbour is not below it, as where points tie, all points
as near are compared.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.points.clouds import Clouds, pair

# Dimensions from which on products are faster: 20,000 points, k = 16, two threads.
_MANY_DIMENSIONS = 12
# Numbers of a block.
_BLOCK = 1 << 22
# Candidates more than neighbours.
_MORE = 8
# A k-d tree and this module round differently, by far less than this.
_SLACK = 1e-9


def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    *,
    cosine: bool = False,
) -> Tensor:
    """Finds, for each point of y, the k nearest points of x in its cloud, or all if there are fewer.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        k: The number of neighbours.
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: those of y.
        cosine: Whether the nearest have the largest cosine similarity. The similarity of a point at 0 is 0.

    Returns:
        [2, E], int64: numbers of points of y, which ascend, and of x, the nearest first.

    Raises:
        ArgumentError: A shape, dtype or device does not fit, a coordinate is not finite, or k is negative.
    """
    if k < 0:
        raise ArgumentError(f"k: expected at least 0, got {k}.")
    among, of = pair(x, y, ptr_x, ptr_y)
    if cosine:
        among, of = _on_sphere(among, of)
    return _found(among, of, _Wanted(k))


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
    """Finds, for each point of y, the points of x in its cloud that are nearer than a distance.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        r: The distance. A point exactly as far away is not found, as in pyg-lib.
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: those of y.
        most: How many are kept for each point: the nearest. (PyG's documents call the choice random.) None
            means all.
        omit_self: Whether point i of x is no neighbour of point i of y.

    Returns:
        [2, E], int64, as :func:`knn`.

    Raises:
        ArgumentError: As :func:`knn`; or r or ``most`` is negative.
    """
    if math.isnan(r) or r < 0:
        raise ArgumentError(f"r: expected at least 0, got {r}.")
    if most is not None and most < 0:
        raise ArgumentError(f"most: expected at least 0, got {most}.")
    among, of = pair(x, y, ptr_x, ptr_y)
    return _found(among, of, _Wanted(most, r, omit_self))


def nearest(x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None) -> Tensor:
    """Finds, for each point of x, the nearest point of y in its cloud.

    Args:
        x: [N, D], real numbers on the CPU; [N] means D = 1.
        y: [M, D].
        ptr_x: [B + 1], int64: the bounds of the clouds of x; None means one cloud.
        ptr_y: [B + 1], int64: those of y.

    Returns:
        [N], int64.

    Raises:
        ArgumentError: As :func:`knn`; or a cloud has points of x and none of y.
    """
    among, of = pair(y, x, ptr_y, ptr_x)
    alone = (among.sizes == 0) & (of.sizes > 0)
    if alone.any():
        raise ArgumentError(f"y: cloud {int(alone.int().argmax())} has no point, and points of x are in it.")
    return _found(among, of, _Wanted(1))[1].clone()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The neighbours that are wanted.

    Attributes:
        most: How many of each point; None means all.
        r: How near they must be.
        omit_self: Whether a point is not its own neighbour.
    """

    most: int | None
    r: float = math.inf
    omit_self: bool = False

    @property
    def squared(self) -> float:
        """The square of ``r``, which overflows to infinity."""
        return self.r * self.r

    def among(self, count: int) -> int:
        """Return how many candidates of so many points are enough, if a bound is to follow."""
        return count if self.most is None else min(self.most + self.omit_self + 1, count)

    def kept(self, count: int) -> int:
        """Return how many of so many candidates are kept at most."""
        return count if self.most is None else min(self.most, count)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Points that may be neighbours of a block of points.

    Attributes:
        numbers: [rows, C], int64, the nearest first; those of no point are N.
        squared: [rows, C]: about the squares of their distances; infinite for no point.
        error: [rows]: how far off these may be.
        bound: [rows]: the square of a distance that no other point is below.
    """

    numbers: Tensor
    squared: Tensor
    error: Tensor
    bound: Tensor

    def at(self, places: Tensor) -> "_Candidates":
        """The candidates of some of the points."""
        return _Candidates(self.numbers[places], self.squared[places], self.error[places], self.bound[places])


class _Finder(Protocol):
    """Finds candidates in the clouds of x."""

    def blocks(self, wanted: _Wanted) -> Iterator[tuple[Tensor, _Candidates]]:
        """Numbers of points of y, in order, and their candidates."""
        ...

    def all_within(self, rows: Tensor, squared: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Places in ``rows`` and all candidates at most as far from each, in blocks of rows."""
        ...


def _found(among: Clouds, of: Clouds, wanted: _Wanted) -> Tensor:
    if not among.points.numel() or not of.points.numel() or wanted.most == 0 or not wanted.r:
        return torch.empty(2, 0, dtype=torch.int64, device="cpu")
    measure = _Measure(among, of)
    dims = among.points.size(1)
    finder: _Finder = _Products(among, of) if dims >= _MANY_DIMENSIONS else _Tree(among, of)
    parts = []
    for rows, candidates in finder.blocks(wanted):
        found, close = _told_apart(rows, candidates, wanted)
        if close.numel():
            found = _merged(found, _measured(finder, measure, rows[close], candidates.at(close), wanted))
        parts.append(found)
    return torch.cat(parts, 1)


def _told_apart(rows: Tensor, candidates: _Candidates, wanted: _Wanted) -> tuple[Tensor, Tensor]:
    """The edges of points whose candidates differ by more than the error, and the places of the others."""
    numbers, squared = candidates.numbers, candidates.squared
    if wanted.omit_self:
        own = numbers == rows.unsqueeze(1)
        squared, order = squared.masked_fill(own, math.inf).sort(dim=1, stable=True)
        numbers = numbers.gather(1, order)
    kept = wanted.kept(numbers.size(1))
    # The one that follows the last must differ from it as well; further ones are no nearer.
    first, error = squared[:, : kept + 1], candidates.error.unsqueeze(1)
    close = (first.diff(dim=1) <= 2 * error).any(1)
    if wanted.r < math.inf:
        close |= ((first - wanted.squared).abs() <= error).any(1)
    squared = squared[:, :kept].masked_fill(close.unsqueeze(1), math.inf)
    return _edges(rows, numbers[:, :kept], squared.masked_fill_(squared >= wanted.squared, math.inf)), (
        close.nonzero()[:, 0]
    )


def _measured(
    finder: _Finder, measure: "_Measure", rows: Tensor, candidates: _Candidates, wanted: _Wanted
) -> Tensor:
    """[2, E]: the neighbours of rows among the candidates, and among others where those may be as near."""
    numbers, squared = measure.sorted(rows, candidates.numbers, wanted)
    kept = wanted.kept(numbers.size(1))
    numbers, squared = numbers[:, :kept], squared[:, :kept]
    # The farthest that a further neighbour could be, or the last that was found.
    last = squared[:, -1].clamp(max=wanted.squared)
    unsure = ((last >= candidates.bound * (1 - _SLACK)) & candidates.bound.isfinite()).nonzero()[:, 0]
    found = _edges(rows, numbers, squared)
    if not unsure.numel():
        return found
    return _merged(found, _compared(finder, measure, rows[unsure], last[unsure], wanted))


def _edges(rows: Tensor, numbers: Tensor, squared: Tensor) -> Tensor:
    """[2, E]: the pairs at finite distances."""
    exists = squared.isfinite()
    return torch.stack([rows.unsqueeze(1).expand_as(numbers)[exists], numbers[exists]])


def _merged(edges: Tensor, instead: Tensor) -> Tensor:
    """Edges, in order of their first row, with those of some rows replaced."""
    kept = edges[:, ~torch.isin(edges[0], instead[0])]
    both = torch.cat([kept, instead], 1)
    return both[:, both[0].argsort(stable=True)]


def _compared(finder: _Finder, measure: "_Measure", rows: Tensor, squared: Tensor, wanted: _Wanted) -> Tensor:
    """[2, E]: the neighbours of rows, of all points that are at most so far away."""
    parts = []
    for place, number in finder.all_within(rows, squared):
        found = measure.squared(rows[place], number, wanted)
        order = number.argsort()
        order = order[found[order].argsort(stable=True)]
        order = order[place[order].argsort(stable=True)]
        place, number, found = place[order], number[order], found[order]
        if wanted.most is not None:
            first = torch.searchsorted(place, place)
            kept = torch.arange(place.numel(), device="cpu") - first < wanted.most
            place, number, found = place[kept], number[kept], found[kept]
        parts.append(torch.stack([rows[place], number])[:, found.isfinite()])
    return torch.cat(parts, 1)


class _Measure:
    """Squares of distances, by one formula for all, whatever finds the candidates."""

    def __init__(self, among: Clouds, of: Clouds) -> None:
        self._x, self._y = among.points.t().contiguous(), of.points.t().contiguous()
        self._of_x, self._of_y = among.of_points, of.of_points
        self._one_cloud = among.sizes.numel() == 1

    def squared(self, rows: Tensor, numbers: Tensor, wanted: _Wanted) -> Tensor:
        """Squared distances of pairs; infinite for what is no neighbour, and for number N."""
        missing = numbers == self._of_x.numel()
        numbers = numbers.masked_fill(missing, 0)
        total = torch.zeros(numbers.shape, dtype=torch.float64, device="cpu")
        for x, y in zip(self._x, self._y, strict=True):
            total += (x[numbers] - y[rows]).square_()
        wrong = missing | (total >= wanted.squared) if wanted.r < math.inf else missing
        if not self._one_cloud:
            wrong = wrong | (self._of_x[numbers] != self._of_y[rows])
        if wanted.omit_self:
            wrong = wrong | (numbers == rows)
        return total.masked_fill_(wrong, math.inf)

    def sorted(self, rows: Tensor, numbers: Tensor, wanted: _Wanted) -> tuple[Tensor, Tensor]:
        """Candidates of rows and their squared distances, the nearest first, ties by number."""
        numbers = numbers.sort(1).values
        squared, order = self.squared(rows.unsqueeze(1), numbers, wanted).sort(dim=1, stable=True)
        return numbers.gather(1, order), squared


class _Tree:
    """A k-d tree of all clouds: a further coordinate keeps clouds farther apart than their points."""

    def __init__(self, among: Clouds, of: Clouds) -> None:
        x, y = among.points, of.points
        self._apart = math.inf
        if among.sizes.numel() > 1:
            both = torch.cat([x, y])
            self._apart = 1 + 2 * float((both.amax(0) - both.amin(0)).norm())
            x, y = (
                torch.cat([each.points, each.of_points.unsqueeze(1) * self._apart], 1) for each in (among, of)
            )
        self._tree = cKDTree(x.numpy(), balanced_tree=False)
        self._points = y.numpy()
        self._largest = int(among.sizes.max())

    def blocks(self, wanted: _Wanted) -> Iterator[tuple[Tensor, _Candidates]]:
        """As :class:`_Finder` has it."""
        most = self._largest
        limit = {} if wanted.r == math.inf else {"distance_upper_bound": wanted.r * (1 + _SLACK)}
        if limit:
            reach = wanted.r * (1 + _SLACK)
            counts = self._tree.query_ball_point(
                self._points, reach, return_length=True, workers=torch.get_num_threads()
            )
            most = int(counts.max())
        count = max(wanted.among(most), 1)
        # Where all points within reach are candidates, or all of a cloud, no other can be nearer.
        is_all = count >= most
        step = max(_BLOCK // (count * self._points.shape[1]), 1)
        for begin in range(0, len(self._points), step):
            block = self._points[begin : begin + step]
            distance, numbers = self._tree.query(block, k=count, workers=torch.get_num_threads(), **limit)
            distance = torch.from_numpy(np.asarray(distance).reshape(len(block), count))
            found = torch.from_numpy(np.asarray(numbers).reshape(len(block), count))
            # Where the last is in another cloud, all of the own are candidates.
            squared = distance.square().masked_fill_(distance > 0.75 * self._apart, math.inf)
            bound = torch.full_like(squared[:, -1], math.inf) if is_all else squared[:, -1]
            error = _SLACK * squared.masked_fill(squared == math.inf, 0).amax(1)
            rows = torch.arange(begin, begin + len(block), device="cpu")
            yield rows, _Candidates(found, squared, error, bound)

    def all_within(self, rows: Tensor, squared: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """As :class:`_Finder` has it."""
        points = self._points[rows.numpy()]
        reach = squared.sqrt().numpy() * (1 + _SLACK)
        options = {"workers": torch.get_num_threads(), "return_sorted": False}
        counts = self._tree.query_ball_point(points, reach, return_length=True, **options)
        for begin, end in _shares(torch.from_numpy(counts), _BLOCK):
            lists = self._tree.query_ball_point(points[begin:end], reach[begin:end], **options)
            numbers = np.concatenate([np.asarray(each, dtype=np.int64) for each in lists])
            places = torch.repeat_interleave(torch.from_numpy(counts[begin:end])) + begin
            yield places, torch.from_numpy(numbers)


class _Products:
    """Products of blocks of points with all of their cloud, around the middle of each cloud."""

    def __init__(self, among: Clouds, of: Clouds) -> None:
        self._among, self._of = among, of
        clouds, dims = among.sizes.numel(), among.points.size(1)
        totals = torch.zeros(clouds, dims, dtype=torch.float64, device="cpu")
        totals.index_add_(0, among.of_points, among.points)
        middles = totals / among.sizes.clamp(min=1).unsqueeze(1)
        self._x, self._y = (each.points - middles[each.of_points] for each in (among, of))
        self._norms = self._x.square().sum(1)

    def blocks(self, wanted: _Wanted) -> Iterator[tuple[Tensor, _Candidates]]:
        """As :class:`_Finder` has it."""
        for (first, last), (begin, end) in zip(
            self._among.bounds.unfold(0, 2, 1).tolist(), self._of.bounds.unfold(0, 2, 1).tolist(), strict=True
        ):
            size = last - first
            if not size:
                continue
            count = wanted.among(size)
            count = min(count + _MORE, size) if count < size else size
            for row in range(begin, end, max(_BLOCK // size, 1)):
                rows = torch.arange(row, min(row + max(_BLOCK // size, 1), end), device="cpu")
                yield rows, self._candidates(rows, first, last, count)

    def _candidates(self, rows: Tensor, first: int, last: int, count: int) -> _Candidates:
        y = self._y[rows]
        near = torch.addmm(self._norms[first:last], y, self._x[first:last].t(), alpha=-2)
        values, numbers = near.topk(count, largest=False)
        norms = y.square().sum(1)
        squared = values.add_(norms.unsqueeze(1))
        # Each of so many operations is off by at most half of eps of the largest product; see Higham,
        # Accuracy and Stability of Numerical Algorithms, section 3.1. Four times that is taken.
        roundings = 2 * (self._x.size(1) + 8) * torch.finfo(torch.float64).eps
        error = roundings * (norms.sqrt() + self._norms[first:last].max().sqrt()).square()
        is_all = count == last - first
        bound = torch.full_like(error, math.inf) if is_all else (squared[:, -1] - error).clamp(min=0)
        return _Candidates(numbers + first, squared, error, bound)

    def all_within(self, rows: Tensor, squared: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """As :class:`_Finder` has it."""
        clouds = torch.searchsorted(self._of.bounds, rows, right=True) - 1
        firsts, lasts = self._among.bounds[clouds], self._among.bounds[clouds + 1]
        for begin, end in _shares(lasts - firsts, _BLOCK // self._x.size(1)):
            places, numbers = [], []
            for place in range(begin, end):
                first, last = int(firsts[place]), int(lasts[place])
                distances = (self._among.points[first:last] - self._of.points[rows[place]]).square().sum(1)
                near = (distances <= squared[place] * (1 + _SLACK)).nonzero()[:, 0] + first
                places.append(torch.full_like(near, place))
                numbers.append(near)
            yield torch.cat(places), torch.cat(numbers)


def _shares(counts: Tensor, most: int) -> Iterator[tuple[int, int]]:
    """Bounds of runs of rows with at most so many candidates together, or with one row."""
    begin, total = 0, 0
    for row, count in enumerate(counts.tolist()):
        if total + count > most and row > begin:
            yield begin, row
            begin, total = row, 0
        total += count
    if counts.numel() > begin:
        yield begin, counts.numel()


def _on_sphere(among: Clouds, of: Clouds) -> tuple[Clouds, Clouds]:
    """Points at distance 1 from 0 in the same directions; those at 0 become orthogonal to all others."""
    points = [each.points for each in (among, of)]
    norms = [each.norm(dim=1, keepdim=True) for each in points]
    zeros = [norm == 0 for norm in norms]
    x, y = (each / norm.masked_fill(zero, 1) for each, norm, zero in zip(points, norms, zeros, strict=True))
    if zeros[0].any() or zeros[1].any():
        x = torch.cat([x, zeros[0].double(), torch.zeros_like(norms[0])], 1)
        y = torch.cat([y, torch.zeros_like(norms[1]), zeros[1].double()], 1)
    return Clouds(x, among.bounds), Clouds(y, of.bounds)
