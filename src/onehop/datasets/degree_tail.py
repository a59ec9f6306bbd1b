"""Degrees with a heavy tail: a power law with an offset, cut at a largest degree."""

import numpy as np


def degrees(num_nodes: int, mean: float, exponent: float, largest: float) -> np.ndarray:
    """Return [num_nodes], float64, ascending: quantiles of a Lomax distribution cut off at ``largest``.

    The density is proportional to ``(degree + offset) ** -exponent`` from 0 to ``largest``. The offset is
    chosen such that the mean is ``mean``, and a common factor corrects the remaining error of the quantiles.
    Distribution: K. Lomax, "Business failures", Journal of the American Statistical Association 49 (1954).

    Args:
        num_nodes: Number of nodes.
        mean: Mean degree, below 0.45 times ``largest``.
        exponent: Exponent of the tail, above 1 and other than 2.
        largest: The degree of the largest hub.
    """
    if num_nodes == 0 or mean == 0:
        return np.zeros(num_nodes)
    offset, shape, beyond = figures(mean, exponent, largest)
    place = (np.arange(num_nodes) + 0.5) / num_nodes
    quantiles = offset * ((1.0 - place * (1.0 - beyond)) ** (-1.0 / shape) - 1.0)
    result: np.ndarray = quantiles * (mean / quantiles.mean())
    return result


def figures(mean: float, exponent: float, largest: float) -> tuple[float, float, float]:
    """Return offset and shape of the Lomax distribution, and the share cut off; see :func:`degrees`."""
    shape = exponent - 1.0
    # The mean grows with the offset, from 0 to largest / 2.
    low, high = 1e-9 * mean, 1e4 * largest
    for _ in range(200):
        offset = (low * high) ** 0.5
        if _mean(offset, shape, largest) < mean:
            low = offset
        else:
            high = offset
    return offset, shape, (1.0 + largest / offset) ** -shape


def _mean(offset: float, shape: float, largest: float) -> float:
    """Return the mean of the cut distribution: the integral of its upper tail from 0 to ``largest``."""
    end = 1.0 + largest / offset
    beyond = end**-shape
    area = offset / (shape - 1.0) * (1.0 - end ** (1.0 - shape))
    mean: float = (area - largest * beyond) / (1.0 - beyond)
    return mean
