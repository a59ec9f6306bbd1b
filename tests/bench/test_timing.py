import contextlib
import gc
import math

import pytest

from onehop.bench.timing import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    Ratio,
    Times,
    geometric_mean,
    in_turns,
    interleave,
    median_of_turn,
    quantile,
    timed,
)
from onehop.errors import ArgumentError


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        pytest.param([7.0], 0.5, 7.0, id="one"),
        pytest.param([3.0, 1.0, 2.0], 0.5, 2.0, id="odd"),
        pytest.param([4.0, 1.0, 2.0, 3.0], 0.5, 2.5, id="even"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], 0.25, 2.0, id="quartile"),
        pytest.param([1.0, 2.0], 0.75, 1.75, id="between"),
        pytest.param([5.0, 1.0], 1.0, 5.0, id="largest"),
    ],
)
def test_quantile_interpolates_between_neighbours(values, q, expected):
    assert quantile(values, q) == pytest.approx(expected)


def test_times_summarise_their_rounds():
    summary = Times((4.0, 1.0, 3.0, 2.0, 5.0)).to_dict()
    assert summary == {
        "rounds": 5,
        "min_s": 1.0,
        "lower_quartile_s": 2.0,
        "median_s": 3.0,
        "upper_quartile_s": 4.0,
    }


def test_times_need_a_round():
    with pytest.raises(ArgumentError, match="at least one"):
        Times(())


def test_ratio_has_the_median_and_the_spread_of_the_ratios_of_rounds():
    ratio = Ratio.of(Times((2.0, 6.0, 9.0)), Times((1.0, 3.0, 2.0)))
    assert ratio == Ratio(median=2.0, lower_quartile=2.0, upper_quartile=3.25, rounds=3)
    assert Ratio.of(Times((1.0, 5.0, 3.0)), Times((1.0, 2.0, 2.0))).median == 1.5


def test_quartiles_need_five_rounds():
    four, five = (
        Ratio.of(Times(tuple(map(float, range(1, rounds + 1)))), Times((1.0,) * rounds)) for rounds in (4, 5)
    )
    assert four.quartiles is None
    assert five.quartiles == [2.0, 4.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [pytest.param([2.0, 8.0], 4.0, id="two"), pytest.param([0.5, 2.0, 1.0], 1.0, id="balanced")],
)
def test_geometric_mean(values, expected):
    assert geometric_mean(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    "values", [[], [1.0, 0.0], [1.0, -2.0], [math.nan]], ids=["none", "zero", "negative", "nan"]
)
def test_geometric_mean_wants_positive_values(values):
    with pytest.raises(ArgumentError, match="values"):
        geometric_mean(values)


class Clock:
    """A clock that stands still except when told, in place of the machine's."""

    def __init__(self):
        self.now = 0.0
        self.order = []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.order.append("pause")

    def call(self, name, seconds):
        def run():
            self.now += seconds
            self.order.append(name)

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("onehop.bench.timing.time", clock)
    return clock


def test_interleave_warms_up_and_takes_turns(clock):
    times = interleave({"a": clock.call("a", 0.1), "b": clock.call("b", 0.2)}, rounds=2)
    assert clock.order == ["a", "a", "b", "b", *["pause", "a", "pause", "b"] * 2]
    assert times["a"].seconds == pytest.approx((0.1, 0.1))
    assert times["b"].median_s == pytest.approx(0.2)


def test_interleave_repeats_short_calls_and_reports_one(clock):
    times = interleave({"short": clock.call("short", 1e-3)}, rounds=1)
    assert times["short"].median_s == pytest.approx(1e-3)
    assert clock.order.count("short") == 2 + 2 * 5


def test_interleave_gives_slow_calls_fewer_rounds(clock):
    times = interleave(
        {"slow": clock.call("slow", 10), "quick": clock.call("quick", 0.1)}, rounds=8, budget_s=5
    )
    assert len(times["slow"].seconds) == LEAST_ROUNDS
    assert len(times["quick"].seconds) == 8


def test_interleave_enters_contexts_around_turns_and_does_not_time_them(clock):
    @contextlib.contextmanager
    def context():
        clock.call("enter", 5.0)()
        yield
        clock.call("leave", 7.0)()

    times = interleave(
        {"a": clock.call("a", 0.1), "b": clock.call("b", 0.2)}, rounds=1, contexts={"b": context}
    )
    assert clock.order == [
        "a",
        "a",
        *("enter", "b", "b", "leave"),
        "pause",
        "a",
        *("enter", "pause", "b", "leave"),
    ]
    assert (times["a"].median_s, times["b"].median_s) == pytest.approx((0.1, 0.2))


def test_interleave_wants_a_round():
    with pytest.raises(ArgumentError, match="rounds"):
        interleave({}, rounds=0)


def test_in_turns_lets_everyone_measure_round_by_round():
    order = []

    def turn(name, seconds):
        order.append(name)
        return seconds

    times = in_turns({"a": lambda: turn("a", 1.0), "b": lambda: turn("b", 2.0)}, rounds=2)
    assert order == ["a", "b", "a", "b"]
    assert {name: found.seconds for name, found in times.items()} == {"a": (1.0, 1.0), "b": (2.0, 2.0)}


def test_in_turns_collects_no_garbage_meanwhile_and_goes_on_after_a_fault():
    collecting = []

    def fails():
        collecting.append(gc.isenabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_turns({"a": fails}, rounds=1)
    assert collecting == [False]
    assert gc.isenabled()


def test_timed_does_not_count_the_first_call(clock):
    seconds = iter([9.0, 1.0, 3.0, 2.0])
    times = timed(lambda: clock.call("", next(seconds))(), rounds=3)
    assert times.seconds == pytest.approx((1.0, 3.0, 2.0))


@pytest.mark.parametrize(
    ("one_s", "calls"),
    [(0.1, 5), (10.0, LEAST_ROUNDS), (0.0, MOST_ROUNDS)],
    ids=["as many as fit", "slow", "quick"],
)
def test_a_turn_has_as_many_calls_as_fit(clock, one_s, calls):
    assert median_of_turn(clock.call("call", one_s), turn_s=0.55) == pytest.approx(one_s)
    assert len(clock.order) == 1 + calls
