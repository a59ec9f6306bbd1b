"""Times of several callables, measured in turns, and statistics of the times."""

import gc
import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from onehop.errors import ArgumentError

Name = TypeVar("Name", bound=Hashable)
T = TypeVar("T")
Context = Callable[[], AbstractContextManager[Any]]

# Fewer rounds have a median, and no quartiles that say anything.
LEAST_FOR_QUARTILES = 5
# A callable that has used up its time is still called this often, because a median of fewer calls says
# little.
LEAST_ROUNDS = 3
# Maximum number of calls in a turn.
MOST_ROUNDS = 200
# Calls shorter than this are repeated inside a turn, first unmeasured and then measured, because the caches
# held other callables' data before.
SHORT_S = 5e-3
# Idle threads of another library's pool spin for some milliseconds before they sleep; until then they would
# use the next callable's cores.
PAUSE_S = 0.01


@dataclass(frozen=True)
class Times:
    """The times of one callable.

    Attributes:
        seconds: One number per round, in the order measured.
    """

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse an empty list of times."""
        if not self.seconds:
            raise ArgumentError("seconds: expected at least one time.")

    @property
    def median_s(self) -> float:
        """The median time."""
        return quantile(self.seconds, 0.5)

    @property
    def min_s(self) -> float:
        """The shortest time."""
        return min(self.seconds)

    def to_dict(self) -> dict[str, float | int]:
        """Return rounds, minimum, quartiles and median, in seconds."""
        return {
            "rounds": len(self.seconds),
            "min_s": self.min_s,
            "lower_quartile_s": quantile(self.seconds, 0.25),
            "median_s": self.median_s,
            "upper_quartile_s": quantile(self.seconds, 0.75),
        }


@dataclass(frozen=True)
class Ratio:
    """The ratio of two callables' times: the median and the quartiles of the ratios of the rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    rounds: int

    @classmethod
    def of(cls, slow: Times, fast: Times) -> "Ratio":
        """Return ``slow / fast``; each time is divided by the time of the same round."""
        rounds = [a / b for a, b in zip(slow.seconds, fast.seconds, strict=False)]
        median, lower, upper = (quantile(rounds, part) for part in (0.5, 0.25, 0.75))
        return cls(median, lower, upper, len(rounds))

    @property
    def quartiles(self) -> list[float] | None:
        """Both quartiles; None for too few rounds."""
        enough = self.rounds >= LEAST_FOR_QUARTILES
        return [self.lower_quartile, self.upper_quartile] if enough else None


@dataclass(kw_only=True)
class Compared:
    """Several ways to compute the same, checked before they are timed.

    Attributes:
        times: Times by the name of the way.
        skipped: The reason why a way was not run, by its name.
        wrong: What is wrong with a way's result, by its name; a wrong way is not timed.
    """

    times: dict[str, Times] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    def ratio(self, slow: str | None, fast: str) -> Ratio | None:
        """Return one way's times divided by another's; None if one of them was not timed."""
        if slow is None or slow not in self.times or fast not in self.times:
            return None
        return Ratio.of(self.times[slow], self.times[fast])

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison, ready for JSON."""
        return {
            "times": {name: times.to_dict() for name, times in self.times.items()},
            "skipped": self.skipped,
            "wrong": self.wrong,
        }


def interleave(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    budget_s: float = math.inf,
    contexts: Mapping[str, Context] | None = None,
) -> dict[str, Times]:
    """Call everything once unmeasured, then in turns, so that slow moments affect all callables equally.

    Args:
        calls: The callables to measure, by name.
        rounds: Number of measurements of each.
        budget_s: Time after which a callable is left out of further rounds, if it has had three of them.
        contexts: Contexts entered, untimed, around the turns of the callables of these names; None means
            none.

    Returns:
        The times by name, in the order given.

    Raises:
        ArgumentError: ``rounds`` is less than 1.
    """
    around = {**dict.fromkeys(calls, nullcontext), **(contexts or {})}
    repeats = {name: within(around[name], partial(_repeats, call)) for name, call in calls.items()}

    def turn(name: str) -> float:
        time.sleep(PAUSE_S)
        if repeats[name] > 1:
            measure_once(calls[name], repeats[name])
        return measure_once(calls[name], repeats[name])

    def is_enough(name: str, seconds: list[float]) -> bool:
        return len(seconds) >= LEAST_ROUNDS and sum(seconds) * repeats[name] > budget_s

    turns = {name: partial(within, around[name], partial(turn, name)) for name in calls}
    return in_turns(turns, rounds, is_enough)


def in_turns(
    turns: Mapping[Name, Callable[[], float]],
    rounds: int,
    is_enough: Callable[[Name, list[float]], bool] = lambda name, seconds: False,
) -> dict[Name, Times]:
    """Measure in turns, round by round.

    The same measurement under a second name is a control: its ratio to the first shows how large the noise
    is.

    Args:
        turns: By name, the function that measures and returns the seconds of a call.
        rounds: Number of turns for each.
        is_enough: Returns whether a name with these times needs no further turn.

    Returns:
        The times by name, in the order given.

    Raises:
        ArgumentError: ``rounds`` is less than 1.
    """
    if rounds < 1:
        raise ArgumentError(f"rounds: expected 1 or more, got {rounds}.")
    seconds: dict[Name, list[float]] = {name: [] for name in turns}
    collecting = gc.isenabled()
    gc.disable()  # a collection would count as time of the running call
    try:
        for _ in range(rounds):
            for name, turn in turns.items():
                if not is_enough(name, seconds[name]):
                    seconds[name].append(turn())
    finally:
        if collecting:
            gc.enable()
    return {name: Times(tuple(values)) for name, values in seconds.items()}


def within(context: Context, call: Callable[[], T]) -> T:
    """Return the result of a call inside a context."""
    with context():
        return call()


def timed(call: Callable[[], object], rounds: int) -> Times:
    """Return the times of a number of calls; one call before them is not counted.

    Raises:
        ArgumentError: ``rounds`` is less than 1.
    """
    call()
    return in_turns({"": partial(measure_once, call)}, rounds)[""]


def median_of_turn(call: Callable[[], object], turn_s: float, least: int = LEAST_ROUNDS) -> float:
    """Return the median seconds of as many calls as fit into ``turn_s``; one before them is not counted.

    Args:
        call: The callable to measure.
        turn_s: Duration of the turn in seconds.
        least: Minimum number of measured calls, even if they take longer.
    """
    rounds = max(least, min(MOST_ROUNDS, int(turn_s / max(measure_once(call), 1e-7))))
    return quantile([measure_once(call) for _ in range(rounds)], 0.5)


def measure_once(call: Callable[[], object], repeats: int = 1) -> float:
    """Return the seconds that one of ``repeats`` calls takes."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def quantile(values: Iterable[float], q: float) -> float:
    """Return the q-quantile (0 to 1) of ``values``, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, which is the suitable mean for ratios.

    Raises:
        ArgumentError: There are no values, or one is not positive.
    """
    logs = []
    for value in values:
        if not value > 0:
            raise ArgumentError(f"values: expected positive numbers, got {value}.")
        logs.append(math.log(value))
    if not logs:
        raise ArgumentError("values: expected at least one.")
    return math.exp(math.fsum(logs) / len(logs))


def _repeats(call: Callable[[], object]) -> int:
    call()
    once = measure_once(call)
    return 1 if once >= SHORT_S else math.ceil(SHORT_S / max(once, 1e-7))
