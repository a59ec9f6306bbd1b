"""Requests to a service: when they arrive, when a worker begins each, and what of that is reported.

No clock is read here: a worker hands its own in.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onehop.bench.timing import quantile

# A percentile of fewer requests says little.
_LEAST = 30
# A turn of few requests a second, or of more than the workers can answer, has no more than fill so long.
_LONGEST_S = 5.0


class Answer(NamedTuple):
    """One request that was answered.

    Attributes:
        number: Its place in the order of arrival.
        begin_s: When a worker began it.
        end_s: When the worker had its answer.
    """

    number: int
    begin_s: float
    end_s: float


class Latencies(NamedTuple):
    """Percentiles of the seconds from a request's arrival to its answer."""

    p50_s: float
    p99_s: float


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Return when requests arrive, in seconds, independently of each other: ``rate`` a second on average."""
    generator = random.Random(seed)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += generator.expovariate(rate)
        arrivals.append(now)
    return arrivals


def requests_of_turn(rate: float, answered: float, seconds: float) -> int:
    """Return how many requests arrive in a turn.

    Args:
        rate: Requests that arrive in a second.
        answered: Requests that the workers can answer in a second.
        seconds: How long a turn should last.
    """
    longest = max(seconds, _LONGEST_S)
    return max(math.ceil(min(max(rate * seconds, _LEAST), rate * longest, answered * longest)), 1)


def answer_next(
    number: int,
    arrivals: Sequence[float],
    answer: Callable[[int], object],
    now: Callable[[], float],
    wait_until: Callable[[float], None],
) -> Answer:
    """Answers one request: at its arrival, or at once if it has arrived already.

    Workers that each take the next number whenever they are free serve one queue in the order of arrival.
    """
    wait_until(arrivals[number])
    begin = now()
    answer(number)
    return Answer(number, begin, now())


def latencies(arrivals: Sequence[float], answers: Sequence[Answer]) -> Latencies:
    """Return the percentiles of latencies.

    A latency counts from the arrival, so that a request which waits in the queue has a longer one. Counted
    from the beginning of the answer, a slow answer would hide what it does to the requests behind it
    (coordinated omission).
    """
    seconds = [answer.end_s - arrivals[answer.number] for answer in answers]
    return Latencies(quantile(seconds, 0.5), quantile(seconds, 0.99))


def answered_a_second(begin_s: float, workers: Sequence[tuple[int, float]]) -> float:
    """Return the requests a second of workers that are always busy.

    Args:
        begin_s: When all of them began.
        workers: Of each, how many requests it answered, and when it had the last answer.
    """
    return math.fsum(count / (end_s - begin_s) for count, end_s in workers)
