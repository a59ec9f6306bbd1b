"""Requests of a service: arrivals, queues and latencies, beside naive computations. Nothing here is timed."""

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from onehop.bench.arrivals import (
    Answer,
    answer_next,
    answered_a_second,
    latencies,
    poisson,
    requests_of_turn,
)


class Clock:
    """A worker's own clock, which only its answers and its waits move."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def read(self) -> float:
        return self.seconds

    def wait_until(self, then: float) -> None:
        self.seconds = max(self.seconds, then)

    def taking(self, seconds: list[int]) -> Callable[[int], None]:
        def answer(number: int) -> None:
            self.seconds += seconds[number]

        return answer


def by_workers(arrivals: list[int], seconds: list[int], workers: int) -> list[Answer]:
    """The answers of workers, of which the one that is free first takes the next number."""
    clocks = [Clock() for _ in range(workers)]
    answers = []
    for number in range(len(arrivals)):
        clock = min(clocks, key=Clock.read)
        answers.append(answer_next(number, arrivals, clock.taking(seconds), clock.read, clock.wait_until))
    return answers


def second_by_second(arrivals: list[int], seconds: list[int], workers: int) -> dict[int, tuple[int, int]]:
    """When each request begins and ends, by a queue that is looked at in every second."""
    queue: list[int] = []
    at_work: list[int] = []
    ends: dict[int, tuple[int, int]] = {}
    now = 0
    while len(ends) < len(arrivals) or at_work:
        at_work = [number for number in at_work if ends[number][1] > now]
        queue += [number for number, arrival in enumerate(arrivals) if arrival == now]
        while queue and len(at_work) < workers:
            number = queue.pop(0)
            ends[number] = (now, now + seconds[number])
            at_work.append(number)
        now += 1
    return ends


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_workers_serve_one_queue_in_the_order_of_arrival(workers: int, seed: int) -> None:
    draw = random.Random(seed)
    arrivals = sorted(draw.randrange(100) for _ in range(60))
    seconds = [draw.randrange(1, 6) for _ in arrivals]
    answers = by_workers(arrivals, seconds, workers)
    expected = second_by_second(arrivals, seconds, workers)
    assert {each.number: (each.begin_s, each.end_s) for each in answers} == expected
    if workers == 1:
        assert any(each.begin_s > arrivals[each.number] for each in answers), "no request has waited"
    found = latencies(arrivals, random.Random(0).sample(answers, len(answers)))
    whole = [end - arrivals[number] for number, (_, end) in expected.items()]
    assert found == pytest.approx((np.percentile(whole, 50), np.percentile(whole, 99)))


def test_a_slow_answer_counts_for_every_request_behind_it() -> None:
    arrivals = [float(number) for number in range(100)]
    seconds = [50, *[0] * 99]
    found = latencies(arrivals, by_workers(arrivals, seconds, 1))
    assert found.p99_s == pytest.approx(49.01)  # of the requests 0 to 50: 50, 49, ... 0 seconds
    assert found.p50_s == pytest.approx(0.5)


def test_arrivals_are_poissons() -> None:
    rate, count = 20.0, 20_000
    arrivals = poisson(rate, count, seed=3)
    assert arrivals == poisson(rate, count, seed=3) != poisson(rate, count, seed=4)
    gaps = np.diff([0.0, *arrivals])
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(1 / rate, rel=0.05)
    counted = Counter(int(each) for each in arrivals)
    a_second = [counted[second] for second in range(int(arrivals[-1]))]
    # As many a second as the rate on average, and of the same variance.
    assert np.mean(a_second) == pytest.approx(rate, rel=0.05)
    assert np.var(a_second) == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize(
    ("rate", "answered", "seconds", "expected"),
    [
        pytest.param(1000.0, 2000.0, 0.5, 500, id="as many as come"),
        pytest.param(20.0, 40.0, 0.5, 30, id="enough for a percentile"),
        pytest.param(2.0, 40.0, 0.5, 10, id="few requests"),
        pytest.param(0.01, 40.0, 0.5, 1, id="hardly any"),
        pytest.param(1000.0, 10.0, 0.5, 50, id="more than can be answered"),
        pytest.param(2.0, 40.0, 60.0, 120, id="long"),
    ],
)
def test_requests_of_a_turn(rate: float, answered: float, seconds: float, expected: int) -> None:
    assert requests_of_turn(rate, answered, seconds) == expected


def test_busy_workers_answer_together() -> None:
    assert answered_a_second(10.0, [(4, 12.0), (9, 13.0)]) == 5.0
