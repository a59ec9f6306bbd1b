"""The search: from the model's best plans to the best measured plan, one field of the plan at a time.

Plans are measured in turns, so that a slow moment of the machine affects all of them, and compared by their
shortest times, which disturbances do not lengthen. A plan is dropped early if it is slower by a margin, or if
the model predicts a time that is far too long. At the end, the winner must prove itself against the default
plan in a separate race (:mod:`onehop.tuner.proof`); if it does not, or if there is no time for the race, the
default stays.

A search is a generator that yields after every measurement. It may run to its end at once (:func:`finish`),
or in small steps.
"""

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from onehop.plans.entry import P
from onehop.tuner.candidates import Axes
from onehop.tuner.proof import LEAST_PAIRS, Comparison, compared

# A plan is dropped from later rounds of a race if it is slower than the best by this factor.
_BEHIND = 1.06
# A new value must be better by this factor; smaller gains are noise.
_GAIN = 1.01
# A plan that the model predicts to be slower than the best by this factor is not measured.
_HOPELESS = 1.6
_FIRST_ROUNDS, _MORE_ROUNDS, _FINAL_ROUNDS = 2, 3, 9
# Share of the time reserved for the last race; and the maximum share, if its minimum number of pairs takes
# longer.
_FINAL_SHARE, _MOST_FINAL_SHARE = 0.25, 0.5
_MOST_PASSES = 3

T = TypeVar("T")
# Generators that yield after every measurement, and return the outcome.
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Run the remaining steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Budget:
    """A number of seconds that may be spent.

    Args:
        seconds: Number of seconds.
        clock: The clock; None means this process's clock.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.perf_counter
        self._end = self._clock() + seconds

    def left(self) -> float:
        """Return the remaining seconds; negative if more were spent."""
        return self._end - self._clock()

    def part(self, share: float) -> "Budget":
        """Return a separate budget with this share of the remaining seconds."""
        return Budget(share * max(0.0, self.left()), self._clock)


@dataclass(slots=True)
class Search(Generic[P]):
    """One search and its state, which remains valid after an interruption.

    Attributes:
        default: The plan to beat.
        axes: Values to try, by field.
        measure: Returns the seconds of one call of a plan; infinite if the plan cannot run.
        predict: Returns the model's prediction for a plan.
        budget: The time limit.
        watch: Called after every measurement.
        best: The best plan so far.
        times: All measured times of every plan.
        settled: Times of the best and the default plan in the last race, taken in turns; empty before the
            race, or if it had too few rounds.
        exhausted: Whether time ran out before the search ended.
    """

    default: P
    axes: Axes
    measure: Callable[[P], float]
    predict: Callable[[P], float]
    budget: Budget
    watch: Callable[[], None]
    best: P = field(init=False)
    times: dict[P, list[float]] = field(default_factory=dict)
    settled: dict[P, list[float]] = field(default_factory=dict)
    exhausted: bool = False
    _whole: float = field(init=False)

    def __post_init__(self) -> None:
        """Start with the default as the best plan."""
        self.best = self.default
        self.open_again()

    def run(self, starts: Iterable[P]) -> Steps[None]:
        """Search from the best of ``starts`` and the default, until no field gains more or time is over."""
        self.best = yield from self._race([self.default, *starts])
        for _ in range(_MOST_PASSES):
            before = self.best
            for name in self.axes:
                self.best = yield from self._race([self.best, *self._variants(name)])
            if self.best == before or self.exhausted:
                break
        exhausted = self.exhausted
        yield from self._settle()
        self.exhausted = exhausted  # if only the last race was cut short, the search was not

    def open_again(self) -> None:
        """Reopen a finished search for further plans, in the rest of the budget."""
        self._whole = max(0.0, self.budget.left())

    def seconds_left(self) -> float:
        """Return the rest of the budget without the share reserved for the last race."""
        times = self.times.get(self.default, ())
        fewest = 2 * LEAST_PAIRS * statistics.median(times) if times else 0.0
        reserve = min(max(_FINAL_SHARE * self._whole, fewest), _MOST_FINAL_SHARE * self._whole)
        return self.budget.left() - reserve

    def faster(self, best: P, others: list[P]) -> P:
        """Return the fastest of these plans; ``best`` unless another is faster by more than noise."""
        exhausted = self.exhausted
        winner = finish(self._race([best, *others]))
        self.exhausted = exhausted
        return winner

    def settle_against(self, held: P, challenger: P) -> float | None:
        """Repeat the last race with the default, the best plan and a challenger.

        Returns:
            The challenger's median speed-up; None if it was not measured. The challenger becomes the best
            plan if it proves itself.
        """
        if challenger == held:
            return None
        exhausted, earlier = self.exhausted, self.settled
        finish(self._turns_at_last(list(dict.fromkeys([self.default, held, challenger]))))
        self.exhausted = exhausted
        gain = compared(self.settled.get(held, ()), self.settled.get(challenger, ()))
        if gain is not None and gain.proven:
            self.best = challenger
        else:
            self.settled = earlier
        return None if gain is None else gain.median

    def gain(self) -> Comparison | None:
        """Return the speed-up of the best plan over the default in the last race; None without a race."""
        if self.best == self.default:
            return None
        return compared(self.settled.get(self.default, ()), self.settled.get(self.best, ()))

    def _variants(self, name: str) -> list[P]:
        current = getattr(self.best, name)
        others = [self.replaced(self.best, name, value) for value in self.axes[name] if value != current]
        expected = {plan: self.predict(plan) for plan in others}
        limit = _HOPELESS * min([self.predict(self.best), *expected.values()])
        return sorted((plan for plan in others if expected[plan] <= limit), key=expected.__getitem__)

    @staticmethod
    def replaced(plan: P, name: str, value: object) -> P:
        """Return the plan with another value for one field."""
        return dataclasses.replace(plan, **{name: value})  # type: ignore[arg-type]

    def _race(self, plans: list[P]) -> Steps[P]:
        """Return the fastest plan; the first one unless another is faster by more than noise."""
        plans = list(dict.fromkeys(plans))
        if len(plans) == 1:
            return plans[0]
        least = yield from self._turns(plans, _FIRST_ROUNDS, {})
        limit = _BEHIND * min(least.values(), default=0.0)
        survivors = [plan for plan in plans if least.get(plan, limit + 1) <= limit]
        if len(survivors) > 1:
            least = yield from self._turns(survivors, _MORE_ROUNDS, least)
        fastest = min(survivors, key=least.__getitem__) if survivors else plans[0]
        held = least.get(plans[0])
        return fastest if held is not None and least[fastest] * _GAIN < held else plans[0]

    def _turns(self, plans: list[P], rounds: int, least: dict[P, float]) -> Steps[dict[P, float]]:
        least = dict(least)
        for _ in range(rounds):
            for plan in plans:
                seconds = yield from self._once(plan, self.seconds_left)
                if seconds is None:
                    return least
                least[plan] = min(seconds, least.get(plan, seconds))
        return least

    def _once(self, plan: P, left: Callable[[], float]) -> Steps[float | None]:
        """Measure a plan once; None if the measurement would not end in the remaining time."""
        times = self.times.get(plan)
        if times and times[-1] == math.inf:
            return math.inf
        reference = times or self.times.get(self.default)
        expected = statistics.median(reference) if reference else self.predict(plan)
        if left() < expected:
            self.exhausted = True
            return None
        collecting = gc.isenabled()
        gc.disable()  # a collection would be charged to the running plan
        try:
            seconds = self.measure(plan)
        finally:
            if collecting:
                gc.enable()
        self.times.setdefault(plan, []).append(seconds)
        self.watch()
        yield
        return seconds

    def _settle(self) -> Steps[None]:
        """Run the last race, best against default; the best plan stays only if it proves itself."""
        plans = [self.default] if self.best == self.default else [self.default, self.best]
        yield from self._turns_at_last(plans)
        gain = self.gain()
        if gain is None or not gain.proven:
            self.best = self.default

    def _turns_at_last(self, plans: list[P]) -> Steps[None]:
        """Measure each plan once per round; every other round runs in reverse order."""
        rounds: list[dict[P, float]] = []
        for number in range(_FINAL_ROUNDS):
            times: dict[P, float] = {}
            for plan in plans if number % 2 == 0 else reversed(plans):
                seconds = yield from self._once(plan, self.budget.left)
                if seconds is None:
                    break
                times[plan] = seconds
            if len(times) < len(plans):
                break
            rounds.append(times)
        enough = len(rounds) >= LEAST_PAIRS
        self.settled = {plan: [times[plan] for times in rounds] for plan in plans} if enough else {}
