"""Degrees with a heavy tail: their mean, their ends, and their slope."""

import numpy as np
import pytest

from onehop.datasets import degree_tail


@pytest.mark.parametrize("exponent", [1.5, 2.5, 3.0, 4.0, 20.0])
@pytest.mark.parametrize(("mean", "largest"), [(50.0, 17_000.0), (600.0, 7_000.0), (5.0, 12.0)], ids=str)
def test_mean_and_ends(exponent: float, mean: float, largest: float) -> None:
    found = degree_tail.degrees(100_000, mean, exponent, largest)
    assert found.mean() == pytest.approx(mean)
    assert bool((np.diff(found) >= 0).all())
    assert found[0] >= 0
    assert found[-1] <= 1.05 * largest


def test_the_mean_of_the_formula_is_that_of_the_quantiles() -> None:
    # What one factor makes up for is little, so the offset was solved for rightly.
    offset, shape, largest = 30.0, 2.0, 5_000.0
    place = (np.arange(1_000_000) + 0.5) / 1_000_000
    beyond = (1 + largest / offset) ** -shape
    quantiles = offset * ((1 - place * (1 - beyond)) ** (-1 / shape) - 1)
    assert degree_tail._mean(offset, shape, largest) == pytest.approx(quantiles.mean(), rel=1e-3)


def test_the_tail_falls_with_the_exponent() -> None:
    found = degree_tail.degrees(1_000_000, 20.0, 2.5, 1e7)
    # The share of nodes above a degree goes with its power 1 - exponent, far from the offset.
    ratio = (found > 1_000).sum() / (found > 4_000).sum()
    assert ratio == pytest.approx(4**1.5, rel=0.1)


@pytest.mark.parametrize(("num_nodes", "mean"), [(0, 3.0), (5, 0.0)], ids=["no nodes", "no edges"])
def test_nothing(num_nodes: int, mean: float) -> None:
    assert degree_tail.degrees(num_nodes, mean, 3.0, 10.0).tolist() == [0.0] * num_nodes
