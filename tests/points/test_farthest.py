"""Farthest points against picks one by one."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from onehop import ArgumentError
from onehop.points.farthest import farthest_points
from tests.points.naive import squared


def picked(x: Tensor, first: int, count: int) -> list[int]:
    found = [first]
    while len(found) < count:
        left = [number for number in range(len(x)) if number not in found]
        away = [min(squared(x[number], x[each]) for each in found) for number in left]
        found.append(left[away.index(max(away))])
    return found


@pytest.mark.parametrize("dims", [1, 3, 5])
@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0])
def test_one_cloud(dims, ratio):
    x = torch.randn(30, dims)
    x[20:] = x[:10]  # the same points once more
    expected = picked(x, 0, math.ceil(30 * ratio))
    assert farthest_points(x, None, ratio, random_start=False).tolist() == expected


@pytest.mark.parametrize("kind", ["random", "grid"])
def test_a_large_cloud(isa, kind):
    x = torch.randn(300, 3) if kind == "random" else torch.randint(0, 5, (300, 3)).float()
    assert farthest_points(x, None, 0.05, random_start=False).tolist() == picked(x, 0, 15)


@pytest.mark.parametrize("count", [1, 2, 9, 70])
@pytest.mark.parametrize("places", [1, 2])
def test_no_point_is_picked_again(isa, count, places):
    x = torch.zeros(count, 3)
    x[::2] += places - 1
    for random_start in (False, True):
        found = farthest_points(x, None, 1.0, random_start=random_start).tolist()
        assert sorted(found) == list(range(count))
        assert found == picked(x, found[0], count)


def test_clouds_of_many_sizes():
    x, ptr = torch.randn(70, 3), torch.tensor([0, 0, 1, 3, 3, 40, 50, 70])
    bounds = ptr.tolist()
    expected = []
    for begin, end in itertools.pairwise(bounds):
        if end > begin:
            found = picked(x[begin:end], 0, math.ceil((end - begin) * 0.4))
            expected += [begin + each for each in found]
    assert farthest_points(x, ptr, 0.4, random_start=False).tolist() == expected


def test_the_first_is_drawn_by_torch():
    x, ptr = torch.randn(500, 2), torch.tensor([0, 100, 500])
    torch.manual_seed(1)
    once = farthest_points(x, ptr, 0.01)
    torch.manual_seed(1)
    assert torch.equal(farthest_points(x, ptr, 0.01), once)
    starts = {tuple(farthest_points(x, ptr, 0.01)[[0, 1]].tolist()) for _ in range(20)}
    assert len(starts) > 10
    assert all(first < 100 <= second for first, second in starts)


def test_no_points():
    assert farthest_points(torch.empty(0, 3), torch.tensor([0])).shape == (0,)
    assert farthest_points(torch.empty(0, 3), torch.tensor([0, 0, 0])).shape == (0,)


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.1, math.nan])
def test_bad_ratios(ratio):
    with pytest.raises(ArgumentError, match="ratio: expected a number above 0 and at most 1"):
        farthest_points(torch.randn(5, 2), None, ratio)


def test_coordinates_that_are_not_finite():
    with pytest.raises(ArgumentError, match="row 1 is not finite, or too large"):
        farthest_points(torch.tensor([[0.0], [math.nan]]))
