"""B-splines and the products of rows with matrices between them, against sums one by one."""

import itertools

import pytest
import torch
from torch import Tensor

from onehop import ArgumentError
from onehop.ops.splines import spline_basis, spline_weighting
from tests.pairs import pairwise


def spline(v: float, degree: int) -> float:
    """The uniform B-spline over the knots 0 to degree + 1, by the recursion of Cox and de Boor."""
    if degree == 0:
        return float(0 <= v < 1)
    return (v * spline(v, degree - 1) + (degree + 1 - v) * spline(v - 1, degree - 1)) / degree


def naive_basis(
    point: list[float], kernel_size: list[int], is_open: list[int], degree: int
) -> dict[int, float]:
    """The weight of each matrix at a point."""
    found: dict[int, float] = {}
    knots = [
        each * (size - degree * opened)
        for each, size, opened in zip(point, kernel_size, is_open, strict=True)
    ]
    for place in itertools.product(range(degree + 1), repeat=len(point)):
        weight, number, stride = 1.0, 0, 1
        for each, at, size in zip(knots, place, kernel_size, strict=True):
            weight *= spline(each % 1 + degree - at, degree)
            number += (int(each // 1) + at) % size * stride
            stride *= size
        found[number] = found.get(number, 0.0) + weight
    return found


@pairwise(degree=[1, 2, 3], kernel_size=[[5], [4, 3], [4, 5, 6]], is_open=[0, 1])
def test_splines(degree, kernel_size, is_open):
    dims = len(kernel_size)
    pseudo = torch.rand(7, dims, dtype=torch.float64)
    pseudo[0] = 0.0
    opened = torch.full((dims,), is_open, dtype=torch.uint8)
    basis, number = spline_basis(pseudo, torch.tensor(kernel_size), opened, degree)
    assert basis.shape == number.shape == (7, (degree + 1) ** dims)
    for row in range(7):
        expected = naive_basis(pseudo[row].tolist(), kernel_size, [is_open] * dims, degree)
        found: dict[int, float] = {}
        for which, weight in zip(number[row].tolist(), basis[row].tolist(), strict=True):
            found[which] = found.get(which, 0.0) + weight
        assert found == pytest.approx(expected, abs=1e-12)


def naive_weighting(x: Tensor, weight: Tensor, basis: Tensor, number: Tensor) -> Tensor:
    return torch.einsum("ek,eskm,es->em", x, weight[number], basis)


@pytest.mark.parametrize("edges", [0, 1, 9])
def test_weighting_and_gradients(edges):
    x = torch.randn(edges, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 4, 3, dtype=torch.float64, requires_grad=True)
    basis = torch.randn(edges, 2, dtype=torch.float64, requires_grad=True)
    number = torch.randint(0, 5, (edges, 2))
    found, expected = (each(x, weight, basis, number) for each in (spline_weighting, naive_weighting))
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    for ours, naive in zip(
        *(torch.autograd.grad(each, [x, weight, basis], grad) for each in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, naive)


def test_gradients_of_points():
    pseudo = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    sizes, opened = torch.tensor([4, 5]), torch.ones(2, dtype=torch.uint8)
    for degree in (1, 2, 3):
        assert torch.autograd.gradcheck(
            lambda each, d=degree: spline_basis(each, sizes, opened, d)[0], pseudo
        )


def test_bad_input():
    sizes, opened = torch.tensor([4, 5]), torch.ones(2, dtype=torch.uint8)
    with pytest.raises(ArgumentError, match="degree: expected 1, 2 or 3, got 4"):
        spline_basis(torch.rand(3, 2), sizes, opened, 4)
    with pytest.raises(ArgumentError, match=r"pseudo, kernel_size, is_open_spline: expected \[E, D\]"):
        spline_basis(torch.rand(3, 3), sizes, opened)
    with pytest.raises(ArgumentError, match=r"x, weight, basis, weight_index: expected \[E, K\]"):
        spline_weighting(torch.rand(3, 5), torch.rand(2, 4, 3), torch.rand(3, 1), torch.zeros(3, 1).long())
