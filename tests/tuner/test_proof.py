"""Noise chooses no plan: samples that something else lengthened make no loser win, and few hide a winner."""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable

import pytest
import torch

import onehop
from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.entry import Tuned
from onehop.tuner import TuningInterrupted
from onehop.tuner.cpu import _timed
from onehop.tuner.proof import LEAST_PAIRS, compared
from onehop.tuner.search import Search, finish
from tests.tuner import machine
from tests.tuner.machine import DEFAULT

AXES = {"prefetch": (0, 16, 64), "threads": (0, 1), "nontemporal": (False, True)}
OTHER = dataclasses.replace(DEFAULT, threads=1)


class Machine(machine.Machine):
    def searched(self, seconds: float = 1e9, starts: Iterable[CpuPlan] = (OTHER,)) -> Search[CpuPlan]:
        search = self.search(AXES, lambda plan: 1.0, seconds)
        finish(search.run(starts))
        return search


def slower(plan: CpuPlan) -> float:
    """Every other plan loses, by 2 % or more."""
    return 1.0 + 0.02 * (plan.prefetch != 16) + 0.3 * plan.threads + 0.02 * plan.nontemporal


def faster(plan: CpuPlan) -> float:
    """The best one is 1.3 times as fast as the default."""
    return 1.3 - 0.2 * (plan.prefetch == 64) - 0.1 * plan.nontemporal + 0.3 * plan.threads


@pytest.mark.parametrize("times", [3.0, 40.0])
def test_single_samples_that_were_interrupted_make_no_loser_win(times: float) -> None:
    """Whichever sample it is, and however soon the time is over; nor do two, nor three."""
    for seconds in (3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 40.0):
        whole = Machine(slower)
        whole.searched(seconds)
        for samples in (1, 2, 3):
            for unlucky in itertools.combinations(range(min(len(whole.calls), 16)), samples):

                def lengthened(number: int, plan: CpuPlan, unlucky: tuple[int, ...] = unlucky) -> float:
                    return times if number in unlucky else 1.0

                search = Machine(slower, lengthened).searched(seconds)
                assert search.best == DEFAULT, (seconds, unlucky)
                assert search.gain() is None


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("cost", [slower, lambda plan: 1.0], ids=["losers", "all-alike"])
def test_samples_interrupted_at_random_make_no_loser_win(
    cost: Callable[[CpuPlan], float], share: float
) -> None:
    won = 0
    for seed in range(300):
        chance = random.Random(seed)

        def lengthened(number: int, plan: CpuPlan, chance: random.Random = chance) -> float:
            return chance.uniform(1.2, 40.0) if chance.random() < share else chance.uniform(1.0, 1.02)

        won += Machine(cost, lengthened).searched(chance.choice([20.0, 100.0, 1e4])).best != DEFAULT
    assert won == 0


def test_a_winner_is_found_though_samples_are_interrupted() -> None:
    best = dataclasses.replace(DEFAULT, prefetch=64, nontemporal=True)
    for every in (7, 11, 13):

        def lengthened(number: int, plan: CpuPlan, every: int = every) -> float:
            return 30.0 if number % every == 3 else 1.0

        search = Machine(faster, lengthened).searched()
        assert search.best == best
        gain = search.gain()
        assert gain is not None
        assert gain.median == pytest.approx(1.3)


def test_a_race_without_time_for_enough_pairs_is_won_by_nobody() -> None:
    for seconds in range(4, 12):
        search = Machine(faster).searched(float(seconds))
        assert search.best == DEFAULT
        assert OTHER not in search.settled
    search = Machine(faster).searched(60.0)
    assert search.best != DEFAULT
    assert len(search.settled[DEFAULT]) >= LEAST_PAIRS


def test_a_machine_that_slows_down_steadily_favours_nobody() -> None:
    slowing = Machine(lambda plan: 1.0, lambda number, plan: 1.0 + 0.01 * number)
    assert slowing.searched().best == DEFAULT


@pytest.mark.parametrize(
    ("held", "challenger", "proven"),
    [
        ([1.30] * 9, [1.0] * 9, True),
        ([1.01] * 9, [1.0] * 9, False),  # too little
        ([1.30] * 4, [1.0] * 4, False),  # too few
        ([43.0, *[1.0] * 8], [1.0] * 9, False),
        ([1.0, *[2.0] * 8], [1.0] * 9, False),  # by the shortest times they are alike
        ([1.1, 1.5, 1.1, 1.5, 1.1, 1.5, 1.1, 1.5, 1.1], [1.0] * 9, False),  # by less than the spread
        ([1.30] * 9, [1.0] * 8 + [60.0], True),
        ([math.inf] * 9, [1.0] * 9, True),
        ([1.0] * 9, [math.inf] * 9, False),
        ([math.inf] * 9, [math.inf] * 9, False),
    ],
)
def test_the_verdict(held: list[float], challenger: list[float], proven: bool) -> None:
    found = compared(held, challenger)
    assert (found is not None and found.proven) == proven


def test_a_plan_that_never_wins_by_more_than_the_spread_never_passes() -> None:
    """Of all ways to put 3 slow and 6 quick samples into pairs, none proves that equals differ."""
    for slow in itertools.combinations(range(9), 3):
        held = [3.0 if place in slow else 1.0 for place in range(9)]
        found = compared(held, [1.0] * 9)
        assert found is not None
        assert not found.proven


@pytest.mark.parametrize(("gain", "least", "most"), [(1.0, 0.0, 0.003), (0.9, 0.0, 0.001), (1.3, 0.3, 0.4)])
def test_how_often_a_plan_passes_on_a_busy_machine(gain: float, least: float, most: float) -> None:
    """The figures of docs/explanation/tuner.md: races of nine pairs, 30 of 100 samples interrupted."""
    chance, races = random.Random(0), 5000

    def sample(seconds: float) -> float:
        disturbed = chance.uniform(1.2, 10.0) if chance.random() < 0.3 else 1.0
        return seconds * disturbed * math.exp(abs(chance.gauss(0.0, 0.05)))

    passed = 0
    for _ in range(races):
        found = compared([sample(gain) for _ in range(9)], [sample(1.0) for _ in range(9)])
        passed += found is not None and found.proven
    assert least <= passed / races <= most


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    return Graph.from_edge_index(torch.randint(0, 200, (2, 40_000), generator=generator), num_nodes=200)


Pretend = Callable[[Callable[[CpuPlan], float]], None]


@pytest.fixture(autouse=True)
def _knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model expects the same of every plan."""
    monkeypatch.setattr("onehop.tuner.cost_model.CostModel.predict", lambda self, plan: 1e-3)


def short_items(plan: CpuPlan) -> float:
    return 1e-3 if plan.edges_per_item == 512 else 1.5e-3


def test_the_result_says_how_far_the_repeats_spread(graph: Graph, pretend: Pretend) -> None:
    times = itertools.count()
    pretend(lambda plan: short_items(plan) * (1 + 0.05 * (next(times) % 3)))
    result = onehop.tune(graph, 16, backward=False, budget_s=30)
    (entry,) = result.entries
    assert entry.quartiles is not None
    low, median, high = entry.quartiles
    assert 1.3 < low <= median == entry.speedup <= high < 1.7
    assert low < high
    assert f"{median:.2f}x the default plan (" in str(result)
    assert f"{low:.2f} to {high:.2f} times as fast as the default plan in half of 9 pairs" in result.details()
    assert onehop.TuningResult.from_json(result.to_json()) == result
    tuned.forget()  # as another process
    assert tuned.known(entry.case) == entry


def test_what_was_not_measured_is_not_called_tuned(
    graph: Graph, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def cost(plan: CpuPlan) -> float:
        now[0] += 1.0
        return short_items(plan) * 1000

    pretend(cost)
    monkeypatch.setattr("onehop.tuner.search.time.perf_counter", lambda: now[0])
    untuned = CpuBackend().plan_of_sum(graph, False, 16, torch.float32)
    result = onehop.tune(graph, 16, backward=False, budget_s=6)
    (entry,) = result.entries
    assert entry.tried >= 1
    assert (entry.measured_s, entry.default_s, entry.quartiles, entry.finished) == (None, None, None, False)
    assert result.plan == untuned == CpuBackend().plan_of_sum(graph, False, 16, torch.float32)
    assert result.curve[0].over_default is None
    assert "not measured for long enough, so the default plan is used" in str(result)
    assert "x the default" not in str(result)


def interrupted(plan: CpuPlan) -> float:
    raise KeyboardInterrupt


def test_a_search_that_confirms_nothing_leaves_what_was_confirmed_before(
    graph: Graph, pretend: Pretend
) -> None:
    case = tuned.case_of(graph, "sum", False, 16, torch.float32)
    earlier = Tuned(case, CpuPlan(edges_per_item=77), 1e-3, 1e-3, 2e-3, tried=5)
    tuned.install([earlier])
    pretend(interrupted)
    with pytest.raises(TuningInterrupted, match="1 plan was confirmed and is kept") as told:
        onehop.tune(graph, 16, backward=False, again=True)
    assert told.value.result.entries == (earlier,)
    tuned.forget()  # as another process
    assert CpuBackend().plan_of_sum(graph, False, 16, torch.float32).edges_per_item == 77


def test_an_interruption_says_what_was_confirmed(graph: Graph, pretend: Pretend) -> None:
    widths_seen: set[str] = set()
    pretend(lambda plan: interrupted(plan) if len(widths_seen) > 1 else short_items(plan))
    with pytest.raises(TuningInterrupted) as told:
        onehop.tune(
            graph, [16, 32], backward=False, budget_s=30, progress=lambda what, done: widths_seen.add(what)
        )
    error = told.value
    assert "interrupted; 1 plan was confirmed and is kept. Tune again to continue." in str(error)
    assert [entry.case.width for entry in error.result.entries] == [16]
    entries = json.loads(store.path().read_text())["plans"]
    assert [entry["measured_s"] is None for entry in entries] == [False, True]


@pytest.mark.parametrize(
    ("calls", "measured", "count"),
    [
        ([20e-3, 5e-4, 5e-4, 5e-4, 5e-4], 5e-4, 5),  # the first one had to wait
        ([5e-4, 5e-4, 30e-3], 5e-4, 3),  # one of two others
        ([1e-4, *[1e-4] * 10, 25e-3], 1e-4, 12),  # a later one, among many
        ([20e-3, 3e-3], 3e-3, 2),
        ([0.2], 0.2, 1),
    ],
)
def test_of_short_calls_those_that_waited_do_not_count(
    monkeypatch: pytest.MonkeyPatch, calls: list[float], measured: float, count: int
) -> None:
    now, made = [0.0], []

    def call(plan: CpuPlan) -> None:
        made.append(plan)
        now[0] += calls[len(made) - 1]

    monkeypatch.setattr("onehop.tuner.calls.time.perf_counter", lambda: now[0])
    assert _timed(call, DEFAULT) == pytest.approx(measured)
    assert len(made) == count
