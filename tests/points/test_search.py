"""``knn``, ``within`` and ``nearest`` against a search point by point."""

import functools
import math

import pytest
import torch
from torch import Tensor

from onehop import ArgumentError
from onehop.points import search
from onehop.points.search import knn, nearest, within
from tests.pairs import pairwise
from tests.points.naive import dissimilarity, neighbours, squared

DIMS = [1, 2, 3, 7, 16, 40]


def cloud(kind: str, count: int, dims: int) -> Tensor:
    """Points that are far apart, that tie, that are the same, or that are far from 0 and near each other."""
    generator = torch.Generator().manual_seed(count + dims)
    if kind == "grid":
        return torch.randint(0, 3, (count, dims), generator=generator).float()
    if kind == "same":
        return torch.ones(count, dims)
    x = torch.randn(count, dims, generator=generator, dtype=torch.float64)
    return x * 1e-6 + 1e6 if kind == "far away" else x


KINDS = ["random", "grid", "same", "far away"]


def pairs(found: Tensor) -> list[tuple[int, int]]:
    return list(map(tuple, found.t().tolist()))


@pytest.fixture(params=["tree", "products"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dimension by either way, in blocks of a few rows."""
    monkeypatch.setattr(search, "_MANY_DIMENSIONS", 1 if request.param == "products" else 1000)
    monkeypatch.setattr(search, "_BLOCK", 300)


@pairwise(dims=DIMS, kind=KINDS, k=[1, 4, 100])
def test_the_nearest(way, kind, dims, k):
    x, y = cloud(kind, 40, dims), cloud(kind, 13, dims)
    assert pairs(knn(x, y, k)) == neighbours(x, y, k)


@pairwise(kind=KINDS, most=[None, 3, 39], omit_self=[False, True])
def test_within_a_distance(way, kind, most, omit_self):
    x = cloud(kind, 40, 3)
    # Of the grid, points at distance 1 are not nearer than 1.
    for r in (0.0, 1e-7, 1.0, 1.2, 50.0):
        found = within(x, x, r, most=most, omit_self=omit_self)
        assert pairs(found) == neighbours(x, x, most, r=r, omit_self=omit_self)
    if kind != "grid":
        found = within(x, x, math.inf, most=most, omit_self=omit_self)
        assert pairs(found) == neighbours(x, x, most, omit_self=omit_self)


@functools.cache
def by_sorting(kind: str, dims: int, few: bool) -> Tensor:
    """All points of a large cloud, sorted by their distance from those of a small one, or from each other."""
    x, y = cloud(kind, 1500, dims).double(), cloud(kind, 301 if few else 1500, dims).double()
    total = torch.zeros(len(y), len(x), dtype=torch.float64)
    for of_x, of_y in zip(x.t(), y.t(), strict=True):
        total += (of_x - of_y.unsqueeze(1)).square()
    return total.sort(dim=1, stable=True).indices


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [1, 3, 6, 24])
def test_large_clouds(isa, dims, kind):
    """Trees of several levels, rows of many vectors; few neighbours are ranked, and many are sorted."""
    x = cloud(kind, 1500, dims)
    for y, k in ((cloud(kind, 301, dims), 7), (x, 7), (x, 32), (x, 33), (x, 200)):
        found = knn(x, y, k).view(2, len(y), k)
        assert torch.equal(found[0], torch.arange(len(y)).unsqueeze(1).expand(-1, k))
        assert torch.equal(found[1], by_sorting(kind, dims, y is not x)[:, :k])


@pytest.mark.parametrize("dims", [1, 3, 20])
def test_distances_of_exactly_r(way, dims):
    x = cloud("random", 12, dims)
    for number in range(1, 12):
        r = math.sqrt(squared(x[0], x[number]))
        for each in (r, math.nextafter(r, 0.0), math.nextafter(r, math.inf)):
            assert pairs(within(x, x, each)) == neighbours(x, x, None, r=each)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [2, 20])
def test_clouds(way, kind, dims):
    x, y = cloud(kind, 40, dims), cloud(kind, 17, dims)
    ptr_x, ptr_y = torch.tensor([0, 0, 2, 30, 30, 40]), torch.tensor([0, 3, 9, 10, 12, 17])
    for k in (1, 5, 50):
        assert pairs(knn(x, y, k, ptr_x, ptr_y)) == neighbours(x, y, k, ptr_x, ptr_y)
    for most in (None, 4):
        expected = neighbours(x, y, most, ptr_x, ptr_y, r=1.5)
        assert pairs(within(x, y, 1.5, ptr_x, ptr_y, most=most)) == expected
    full_x, full_y = torch.tensor([0, 2, 30, 40]), torch.tensor([0, 9, 9, 17])
    expected = [number for _, number in neighbours(x, y, 1, full_x, full_y)]
    assert nearest(y, x, full_y, full_x).tolist() == expected


@pytest.mark.parametrize("dims", [2, 20])
def test_cosine(way, dims):
    x, y = torch.randn(40, dims, dtype=torch.float64), torch.randn(9, dims, dtype=torch.float64)
    x[5], y[2] = 0, 0
    found = knn(x, y, 6, cosine=True)
    assert found[0].tolist() == [row for row in range(9) for _ in range(6)]
    expected = neighbours(x, y, 6, distance=dissimilarity)
    # Of a point at 0 all are equally far.
    assert [each for each in pairs(found) if each[0] != 2] == [each for each in expected if each[0] != 2]
    assert knn(x, y, 40, cosine=True)[1, -40:].sort().values.tolist() == list(range(40))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_dtypes_and_strides(dtype):
    x = (torch.randn(50, 6) * 9).to(dtype)
    views = [x[::2, 1:4], x.t()[:3, :25].t(), x[:, :1].expand(-1, 3)[:25]]
    for view in views:
        assert pairs(knn(view, view, 3)) == neighbours(view, view, 3)
    column = x[:, 0]
    assert pairs(knn(column, column, 3)) == neighbours(x[:, :1], x[:, :1], 3)


def test_gradients_do_not_pass():
    x = torch.randn(5, 2, requires_grad=True)
    assert not knn(x, x, 2).requires_grad


@pytest.mark.parametrize("dims", [3, 20])
def test_nothing_to_find(dims):
    x, none = torch.randn(4, dims), torch.empty(0, dims)
    for found in (knn(x, none, 2), knn(none, x, 2), knn(x, x, 0), within(x, x, 0.0), within(none, none, 1.0)):
        assert found.shape == (2, 0)
        assert found.dtype is torch.int64
    bounds = torch.tensor([0])
    assert knn(none, none, 2, bounds, bounds).shape == (2, 0)
    assert nearest(none, x).shape == (0,)


def test_another_default_device_changes_nothing(way):
    x = cloud("grid", 20, 3)
    expected = knn(x, x, 3), within(x, x, 1.5), nearest(x, x[:4])
    with torch.device("meta"):
        found = knn(x, x, 3), within(x, x, 1.5), nearest(x, x[:4])
    assert all(map(torch.equal, found, expected))


def test_a_radius_whose_square_overflows(way):
    x = cloud("random", 9, 2)
    assert pairs(within(x, x, 1e200)) == neighbours(x, x, None)


def test_many_threads_find_the_same():
    x = cloud("grid", 3000, 3)
    once = knn(x, x, 9)
    torch.set_num_threads(torch.get_num_threads() + 2)
    assert torch.equal(knn(x, x, 9), once)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: knn(x, x, -1), "k: expected at least 0, got -1"),
        (lambda x: within(x, x, -0.5), "r: expected at least 0"),
        (lambda x: within(x, x, math.nan), "r: expected at least 0"),
        (lambda x: within(x, x, 1.0, most=-1), "most: expected at least 0"),
        (lambda x: knn(x, x[:, :1], 1), "expected the same dimension, got 2 and 1"),
        (lambda x: knn(x, x.view(-1, 1, 2), 1), r"y: expected real numbers of shape \[N, D\] or \[N\]"),
        (lambda x: knn(x.to(torch.complex64), x, 1), "x: expected real numbers"),
        (lambda x: knn(x, x.to("meta"), 1), "y: expected a dense tensor on the CPU"),
        (lambda x: knn(x, x, 1, torch.tensor([0, 6])), "ptr_x: expected numbers that ascend from 0 to the 5"),
        (lambda x: knn(x, x, 1, torch.tensor([0, 4, 2, 5])), "ptr_x: expected numbers that ascend from 0 to"),
        (lambda x: knn(x, x, 1, None, torch.tensor([0, 2, 5])), "same number of clouds, got 1 and 2"),
        (lambda x: knn(x, x, 1, torch.tensor([0.0, 5.0])), r"ptr_x: expected int64 or int32 of shape"),
        (lambda x: nearest(x, x[:3], torch.tensor([0, 2, 5]), torch.tensor([0, 3, 3])), "y: cloud 1 has no"),
    ],
)
def test_bad_input(call, told):
    with pytest.raises(ArgumentError, match=told):
        call(torch.randn(5, 2))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e200])
def test_coordinates_whose_squares_are_not_finite(value):
    x = torch.randn(5, 2, dtype=torch.float64)
    x[3, 1] = value
    with pytest.raises(ArgumentError, match="x: row 3 is not finite, or too large"):
        knn(x, torch.randn(2, 2), 1)
