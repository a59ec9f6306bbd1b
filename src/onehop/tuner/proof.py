"""The verdict of a final race: whether one plan beats another by more than the spread of their times.

A call that the machine interrupts takes many times as long, and one such sample must not decide for or
against a plan. So the verdict requires enough pairs, and it uses a median, quartiles and shortest times: each
is robust against samples that affect the others. (If 30 of 100 samples are interrupted and take up to ten
times as long, a plan that is no better passes in one of a thousand races of nine pairs. With median and one
quartile only, it passes in 8 of 100. This was simulated with independent samples.)
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Fewer pairs count as no measurement.
LEAST_PAIRS = 5
# A winner must be this many times as fast; a smaller gain does not justify another plan.
WIN = 1.02


@dataclass(frozen=True, slots=True)
class Comparison:
    """Speed-up of one plan over another, from pairs of measurements.

    Attributes:
        low: Lower quartile of the pairs' ratios.
        median: Median of the pairs' ratios.
        high: Upper quartile of the pairs' ratios.
        shortest: The ratio of the shortest times, which no interruption lengthened.
        pairs: Number of pairs.
    """

    low: float
    median: float
    high: float
    shortest: float
    pairs: int

    @property
    def spread(self) -> float:
        """Distance between the quartiles."""
        return 0.0 if self.low == self.high else self.high - self.low

    @property
    def proven(self) -> bool:
        """Return whether the speed-up exceeds the spread of the pairs, also for the shortest times."""
        return (
            self.pairs >= LEAST_PAIRS
            and min(self.median, self.shortest) >= WIN
            and self.low >= 1.0
            and self.median - 1.0 > self.spread
        )


def compared(held: Sequence[float], challenger: Sequence[float]) -> Comparison | None:
    """Return the challenger's speed-up from interleaved times; None if there are too few times.

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
