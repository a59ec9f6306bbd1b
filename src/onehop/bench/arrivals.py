"""Requests to a service: when they arrive, when a worker begins each request, and what is reported.

This module does not read a clock: a worker passes its own clock.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onehop.bench.timing import quantile

# Minimum number of requests; a percentile of fewer requests has little meaning.
_LEAST = 30
# Maximum seconds of a turn with few requests per second, or with more requests than the workers can answer.
_LONGEST_S = 5.0


class Answer(NamedTuple):
    """One request that was answered.

    Attributes:
        number: The request's position in the order of arrival.
        begin_s: Time at which a worker began it.
        end_s: Time at which the worker had its answer.
    """

    number: int
    begin_s: float
    end_s: float


class Latencies(NamedTuple):
    """Percentiles of the seconds from a request's arrival to its answer."""

    p50_s: float
    p99_s: float


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Return the arrival times of independent requests, in seconds: ``rate`` per second on average."""
    generator = random.Random(seed)
    arrivals, now = [], 0.0
    for _ in range(count):
        now += generator.expovariate(rate)
        arrivals.append(now)
    return arrivals


def requests_of_turn(rate: float, answered: float, seconds: float) -> int:
    """Return how many requests arrive in a turn.

    Args:
        rate: Number of requests that arrive per second.
        answered: Number of requests that the workers can answer per second.
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
    """Answer one request: at its arrival, or at once if it has already arrived.

    If each worker takes the next number whenever it is free, the workers serve one queue in the order of
    arrival.
    """
    wait_until(arrivals[number])
    begin = now()
    answer(number)
    return Answer(number, begin, now())


def latencies(arrivals: Sequence[float], answers: Sequence[Answer]) -> Latencies:
    """Return the percentiles of latencies.

    A latency counts from the arrival, so it includes the time that a request waits in the queue. If it
    counted from the begin of the answer, a slow answer would not show its effect on the requests that wait
    behind it (coordinated omission).
    """
    seconds = [answer.end_s - arrivals[answer.number] for answer in answers]
    return Latencies(quantile(seconds, 0.5), quantile(seconds, 0.99))


def answered_a_second(begin_s: float, workers: Sequence[tuple[int, float]]) -> float:
    """Return the requests per second of workers that are always busy.

    Args:
        begin_s: Time at which all workers began.
        workers: For each worker, how many requests it answered, and when it had the last answer.
    """
    return math.fsum(count / (end_s - begin_s) for count, end_s in workers)
