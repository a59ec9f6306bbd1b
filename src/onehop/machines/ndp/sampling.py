"""Stratified samples of a layer's windows, and estimates for all windows from them.

Windows are drawn in runs of consecutive windows, because windows wait for one another. Method: W. Cochran,
"Sampling Techniques" (1977), chapter 5; runs of a simulation: R. Wunderlich et al., "SMARTS" (ISCA 2003).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from onehop.errors import ArgumentError
from onehop.machines.ndp.durations import Reals
from onehop.machines.ndp.mapping import Integers

# Number of windows in a run.
RUN_WINDOWS = 4
# Number of runs drawn per stratum: two, because their difference gives the error.
_PER_STRATUM = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """Size of a sample of windows.

    Attributes:
        runs: Number of runs of four windows that are drawn for every mapping, two from each part of the
            layer. The first and the last run, which fill and drain the machine, are simulated in addition.
        seed: Seed for drawing the runs.
        confidence: Share of samples whose interval contains the true value over all windows.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.arange(80_000).reshape(2, -1) % 5000)
        >>> [layer] = ndp.Machine().sampled(graph, [64], ndp.NdpPlan(retile="index"), ndp.Sample(runs=4))
        >>> layer.time_ns.low <= layer.time_ns.value <= layer.time_ns.high
        True
    """

    runs: int = 16
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, least in (("runs", _PER_STRATUM), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ArgumentError(f"sample: {name} must be an integer of at least {least}, not {value!r}.")
        if not (isinstance(self.confidence, float) and 0 < self.confidence < 1):
            raise ArgumentError(f"sample: confidence must be between 0 and 1, not {self.confidence!r}.")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of a whole layer, estimated from a sample of its windows.

    Attributes:
        value: The estimate.
        low: Lower end of its confidence interval.
        high: Upper end of its confidence interval.
    """

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, half: float) -> "Estimate":
        """Return an estimate whose interval extends ``half`` to both sides of the value."""
        return cls(value, value - half, value + half)

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        """Return an estimate of a figure that is known exactly."""
        return cls(value, value, value)

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def over(self, other: "Estimate") -> "Estimate":
        """Return the ratio to a figure of an independent sample; squared relative errors add up."""
        ratio = self.value / other.value
        relative = ((self.half / self.value) ** 2 + (other.half / other.value) ** 2) ** 0.5
        return Estimate.within(ratio, ratio * relative)

    def scaled(self, factor: float) -> "Estimate":
        """Return the estimate of ``factor`` times the figure; the factor is above 0 and known exactly."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Runs:
    """Runs of windows that are drawn from all runs of a layer.

    Attributes:
        first: [n]: first window of each run, ascending.
        last: [n]: the window after each run's last window.
        stratum: [n]: stratum of each run.
        runs_of: [strata]: number of runs in each stratum, drawn or not.
        confidence: Share of samples whose interval contains the true value over all windows.
    """

    first: Integers
    last: Integers
    stratum: Integers
    runs_of: Integers
    confidence: float

    @classmethod
    def draw(cls, windows: int, sample: Sample, stream: tuple[int, ...]) -> "Runs":
        """Draw two runs from every stratum; strata are equally long parts of the layer.

        Args:
            windows: Number of windows in the layer, at least 1.
            sample: The sample's size and seed.
            stream: Identifies a random stream; samples of different streams are independent.
        """
        runs = -(-windows // RUN_WINDOWS)
        middle = max(0, runs - 2)
        strata = middle if sample.runs >= middle else sample.runs // _PER_STRATUM
        bounds = 1 + np.arange(strata + 1, dtype=np.int64) * middle // max(strata, 1)
        edges = np.unique(np.concatenate([[0], bounds, [runs]])) if middle else np.arange(runs + 1)
        rng = np.random.default_rng([sample.seed, *stream])
        of_strata = np.diff(edges)
        drawn = [
            np.sort(rng.choice(count, min(count, _PER_STRATUM), replace=False)) + begin
            for begin, count in zip(edges[:-1].tolist(), of_strata.tolist(), strict=True)
        ]
        chosen = np.concatenate(drawn).astype(np.int64)
        stratum = np.repeat(np.arange(len(drawn)), [len(each) for each in drawn])
        return cls(
            chosen * RUN_WINDOWS,
            np.minimum(chosen * RUN_WINDOWS + RUN_WINDOWS, windows),
            stratum,
            of_strata,
            sample.confidence,
        )

    @classmethod
    def every(cls, windows: int) -> "Runs":
        """Return all runs of a layer."""
        runs = -(-windows // RUN_WINDOWS)
        return cls.draw(windows, Sample(max(runs, _PER_STRATUM)), (0,))

    @property
    def weight(self) -> Reals:
        """Return [n]: the number of the layer's runs that each drawn run represents."""
        return (self.runs_of / self._drawn)[self.stratum]

    @property
    def _drawn(self) -> Integers:
        """Return [strata]: number of runs drawn."""
        return np.bincount(self.stratum)

    def total(self, of_runs: Reals) -> Reals:
        """Return [...]: estimated sums over all windows, from the sums over each run, [n, ...]."""
        estimated: Reals = np.tensordot(self.weight, of_runs, axes=1)
        return estimated

    def error(self, of_runs: Reals) -> float:
        """Return half the width of an estimated sum's interval; 0 if all runs are drawn.

        Args:
            of_runs: [n]: sum over each run.
        """
        drawn, runs = self._drawn, self.runs_of
        some = drawn < runs
        mean = np.bincount(self.stratum, of_runs) / drawn
        squares = np.bincount(self.stratum, (of_runs - mean[self.stratum]) ** 2)
        spread = squares[some] / (drawn[some] - 1)
        variance = float((runs[some] * (runs[some] - drawn[some]) / drawn[some] * spread).sum())
        freedom = int((drawn[some] - 1).sum())
        return float(stdtrit(freedom, (1 + self.confidence) / 2)) * variance**0.5 if freedom else 0.0

    def estimate(self, of_runs: Reals) -> Estimate:
        """Return the estimated sum over all windows, from the sums over each run, [n]."""
        return Estimate.within(float(self.total(of_runs)), self.error(of_runs))

    def ratio(self, above: Reals, below: Reals) -> Estimate:
        """Return the ratio of two sums over all windows, from sums over runs, [n]; the error is linear."""
        share = float(self.total(above)) / float(self.total(below))
        return Estimate.within(share, self.error(above - share * below) / float(self.total(below)))
