"""The verdict of a last race: whether a plan beats another in interleaved repeats, by more than these spread.

A program that the machine interrupts takes many times as long, and one such sample must neither make a plan
nor break one. So the verdict asks for enough pairs, and for all of a median, quartiles and shortest times:
each of them is deaf to samples that the others hear. (With 30 of 100 samples interrupted, up to tenfold, a
plan that is no better passes in one of a thousand races of nine pairs; in 8 of 100 by median and a quartile
alone. In simulation, of independent samples.)
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# With fewer pairs nothing is called measured.
LEAST_PAIRS = 5
# A winner must be this many times as fast; less is not worth another plan.
WIN = 1.02


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times faster one plan was than another, in pairs of measurements.

    Attributes:
        low: Lower quartile of the pairs' ratios.
        median: Their median.
        high: Their upper quartile.
        shortest: The ratio of the shortest times, which nothing lengthened.
        pairs: How many there were.
    """

    low: float
    median: float
    high: float
    shortest: float
    pairs: int

    @property
    def spread(self) -> float:
        """Between the quartiles."""
        return 0.0 if self.low == self.high else self.high - self.low

    @property
    def proven(self) -> bool:
        """Whether it is faster by more than the pairs spread, and by the shortest times too."""
        return (
            self.pairs >= LEAST_PAIRS
            and min(self.median, self.shortest) >= WIN
            and self.low >= 1.0
            and self.median - 1.0 > self.spread
        )


def compared(held: Sequence[float], challenger: Sequence[float]) -> Comparison | None:
    """How many times faster the challenger was, by times taken in turns; None with too few of them.

    A plan that cannot run takes infinitely long.
    """
    pairs = min(len(held), len(challenger))
    if pairs < LEAST_PAIRS:
        return None
    ratios = sorted(map(_ratio, held, challenger))
    quarter = (pairs - 1) // 4
    return Comparison(
        ratios[quarter],
        statistics.median(ratios),
        ratios[-1 - quarter],
        _ratio(min(held), min(challenger)),
        pairs,
    )


def _ratio(held: float, challenger: float) -> float:
    if challenger == math.inf:
        return 1.0 if held == math.inf else 0.0
    return held / max(challenger, 1e-12)
