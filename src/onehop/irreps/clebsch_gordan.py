"""Real Clebsch-Gordan coefficients, in the basis, sign and normalisation of e3nn's ``wigner_3j``."""

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# Coefficients are sums of a few products of square roots; those that should be 0 are some 1e-17.
_ZERO = 1e-12


@functools.cache
def coupling(l1: int, l2: int, l3: int) -> NDArray[np.float64]:
    """Return the tensor that couples features of degrees l1 and l2 to features of degree l3.

    It is the only tensor of its shape, up to a factor, that no rotation changes. Its squares sum to 1.

    The complex coefficients are those of Racah's formula. The change to real components is the one of e3nn's
    ``o3/_wigner.py``: components of degree 1 are x, y and z, the polar axis is y, and signs are e3nn's.

    Args:
        l1: Degree of the first operand, 0 or more.
        l2: Degree of the second operand.
        l3: Degree of the result, from abs(l1 - l2) to l1 + l2.

    Returns:
        [2 l1 + 1, 2 l2 + 1, 2 l3 + 1], which must not be written to.
    """
    bases = [_to_complex(degree) for degree in (l1, l2, l3)]
    turned = np.einsum(
        "ai,bj,ck,abc->ijk", bases[0], bases[1], bases[2].conj(), _complex_coupling(l1, l2, l3)
    )
    real: NDArray[np.float64] = turned.real / np.linalg.norm(turned.real)
    real[abs(real) < _ZERO] = 0
    real.setflags(write=False)
    return real


def _to_complex(degree: int) -> NDArray[np.complex128]:
    """Return [2l+1, 2l+1]: row m is the complex component m, written in the real components.

    The factor (-i)^l makes the coefficients real.
    """
    basis = np.zeros((2 * degree + 1, 2 * degree + 1), np.complex128)
    basis[degree, degree] = 1
    for m in range(1, degree + 1):
        cosine, sine = degree + m, degree - m
        basis[degree - m, [cosine, sine]] = 1, -1j
        basis[degree + m, [cosine, sine]] = (-1) ** m, 1j * (-1) ** m
        basis[[degree - m, degree + m]] /= math.sqrt(2)
    return (-1j) ** degree * basis


def _complex_coupling(l1: int, l2: int, l3: int) -> NDArray[np.float64]:
    """Return the coefficients of the complex components, [2 l1 + 1, 2 l2 + 1, 2 l3 + 1]."""
    coefficients = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for m1 in range(-l1, l1 + 1):
        for m2 in range(-l2, l2 + 1):
            if abs(m1 + m2) <= l3:
                coefficients[l1 + m1, l2 + m2, l3 + m1 + m2] = _racah(l1, m1, l2, m2, l3)
    return coefficients


def _racah(l1: int, m1: int, l2: int, m2: int, l3: int) -> float:
    """Return the coefficient of m1 and m2 in m1 + m2, by Racah's formula in exact fractions.

    The formula is equation (3.6.11) of A. R. Edmonds, "Angular Momentum in Quantum Mechanics", 1957.
    """
    f, m3 = math.factorial, m1 + m2
    under_root = Fraction(
        (2 * l3 + 1) * f(l3 + l1 - l2) * f(l3 - l1 + l2) * f(l1 + l2 - l3), f(l1 + l2 + l3 + 1)
    )
    under_root *= f(l3 + m3) * f(l3 - m3) * f(l1 - m1) * f(l1 + m1) * f(l2 - m2) * f(l2 + m2)
    total = Fraction(0)
    for n in range(l1 + l2 - l3 + 1):
        rest = l1 + l2 - l3 - n, l1 - m1 - n, l2 + m2 - n, l3 - l2 + m1 + n, l3 - l1 - m2 + n
        if min(rest) >= 0:
            total += Fraction((-1) ** n, f(n) * math.prod(map(f, rest)))
    return math.sqrt(under_root) * float(total)
