"""Coefficients by the equations that define them, by the harmonics that they make, and beside e3nn's."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import lpmv

from onehop.irreps import coupling

MOST = 4
TRIPLES = [(a, b, c) for a, b, c in itertools.product(range(MOST + 1), repeat=3) if abs(a - b) <= c <= a + b]
# The sign of the first coefficient that is not 0, for each of TRIPLES; as e3nn 0.6 has them.
SIGNS = "++++++++-+--+--+-+++-+--+++--++--+++-++--+--+++--++++++-++--+--++"

Numbers = NDArray[np.float64]


def points(count: int) -> Numbers:
    found = np.random.default_rng(0).standard_normal((count, 3))
    unit: Numbers = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def harmonics(degree: int, at: Numbers) -> Numbers:
    """Real spherical harmonics, [N, 2 degree + 1], of length 1; the polar axis is y."""
    x, y, z = at.T
    angle, columns = np.arctan2(x, z), []
    for m in range(-degree, degree + 1):
        order = abs(m)
        scale = math.sqrt((2 if m else 1) * math.factorial(degree - order) / math.factorial(degree + order))
        legendre = (-1) ** order * lpmv(order, degree, y)
        columns.append(scale * legendre * (np.sin(order * angle) if m < 0 else np.cos(order * angle)))
    return np.stack(columns, 1)


def turn(degree: int, rotation: Numbers) -> Numbers:
    """The matrix D with harmonics(R r) = D harmonics(r)."""
    at = points(40)
    solved, *_ = np.linalg.lstsq(harmonics(degree, at), harmonics(degree, at @ rotation.T), rcond=None)
    matrix: Numbers = solved.T
    np.testing.assert_allclose(harmonics(degree, at) @ solved, harmonics(degree, at @ rotation.T), atol=1e-12)
    return matrix


def rotation(seed: int) -> Numbers:
    matrix, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return matrix * np.linalg.det(matrix)


def test_the_harmonics_of_degree_one_are_the_directions():
    np.testing.assert_allclose(harmonics(1, points(5)), points(5), atol=1e-12)


@pytest.mark.parametrize("degrees", TRIPLES, ids=str)
def test_no_rotation_changes_coefficients(degrees):
    coefficients = coupling(*degrees)
    for seed in range(2):
        turns = [turn(degree, rotation(seed)) for degree in degrees]
        turned = np.einsum("ai,bj,ck,ijk->abc", *turns, coefficients)
        np.testing.assert_allclose(turned, coefficients, atol=1e-11)


@pytest.mark.parametrize("degrees", TRIPLES, ids=str)
def test_each_component_has_its_share_of_the_norm(degrees):
    """Coefficients of different components are orthogonal, and all squares add up to 1."""
    coefficients = coupling(*degrees)
    assert coefficients.shape == tuple(2 * degree + 1 for degree in degrees)
    for axes, degree in zip(("ijk,ajk->ia", "jik,jak->ia", "jki,jka->ia"), degrees, strict=True):
        shares = np.einsum(axes, coefficients, coefficients)
        np.testing.assert_allclose(shares, np.eye(2 * degree + 1) / (2 * degree + 1), atol=1e-14)


@pytest.mark.parametrize("degrees", [d for d in TRIPLES if sum(d) % 2 == 0], ids=str)
def test_products_of_harmonics_are_harmonics(degrees):
    """Gaunt's theorem: coupled harmonics of one direction are a multiple of its harmonics."""
    at = points(30)
    first, second, third = (harmonics(degree, at) for degree in degrees)
    made = np.einsum("ni,nj,ijk->nk", first, second, coupling(*degrees))
    ratio = (made * third).sum() / (third * third).sum()
    np.testing.assert_allclose(made, ratio * third, atol=1e-12)
    assert abs(ratio) > 0.01


def test_signs_are_e3nns():
    found = ""
    for degrees in TRIPLES:
        values = coupling(*degrees).ravel()
        found += "+" if values[values.nonzero()[0][0]] > 0 else "-"
    assert found == SIGNS


def test_products_of_vectors():
    """The scalar product, the cross product, and the symmetric product, each times a factor."""
    a, b = points(2)
    couple = [np.einsum("i,j,ijk->k", a, b, coupling(1, 1, degree)) for degree in range(3)]
    np.testing.assert_allclose(couple[0], [a @ b / math.sqrt(3)], atol=1e-15)
    np.testing.assert_allclose(couple[1], np.cross(a, b) / math.sqrt(6) * [1, 1, 1], atol=1e-15)
    np.testing.assert_allclose(couple[2][0], (a[0] * b[2] + a[2] * b[0]) / math.sqrt(10), atol=1e-15)


def test_coefficients_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        coupling(1, 1, 0)[0] = 1


def test_beside_e3nn():
    o3 = pytest.importorskip("e3nn.o3")
    for degrees in TRIPLES:
        expected = o3.wigner_3j(*degrees, dtype=torch.float64).numpy()
        np.testing.assert_allclose(coupling(*degrees), expected, atol=1e-14)
