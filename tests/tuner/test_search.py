"""The search on plans whose cost is a formula and whose time is a number: nothing is run."""

import dataclasses
import math

import pytest

from onehop.tuner.search import finish
from tests.tuner import machine
from tests.tuner.machine import DEFAULT

AXES = {
    "prefetch": (0, 4, 8, 16, 32, 64),
    "edges_per_item": (1024, 4096, 16384),
    "column_tile": (0, 32, 64),
    "nontemporal": (False, True),
}


class Machine(machine.Machine):
    def search(self, seconds=1e9, axes=AXES, predict=None, watch=lambda: None):
        return super().search(axes, predict or self.cost, seconds, watch)


def bowl(plan):
    """Best: 32 ahead, items of 16384, no tile, past the caches."""
    ahead = 1 + abs(plan.prefetch - 32) / 64
    pieces = 1 + 1000 / plan.edges_per_item
    tile = 1.2 if plan.column_tile else 1.0
    return ahead * pieces * tile * (0.9 if plan.nontemporal else 1.0)


BEST = dataclasses.replace(DEFAULT, prefetch=32, edges_per_item=16384, nontemporal=True)


@pytest.mark.parametrize("predict", [None, lambda plan: 1.0], ids=["a model", "no model"])
def test_the_best_of_a_known_curve_is_found(predict):
    search = Machine(bowl).search(predict=predict)
    finish(search.run([]))
    assert search.best == BEST
    assert not search.exhausted
    assert search.settled[BEST][0] < search.settled[DEFAULT][0]


def test_it_is_found_through_noise():
    noise = (1.0, 1.3, 1.02, 1.6, 1.0, 1.1, 1.005)
    search = Machine(bowl, lambda number, plan: noise[number % len(noise)]).search()
    finish(search.run([]))
    assert bowl(search.best) <= 1.03 * bowl(BEST)


def test_fields_that_depend_on_each_other_are_gone_over_again():
    def cost(plan):
        # Writing past the caches pays only with tiles, tiles only with a long distance.
        cost = 2.0
        if plan.prefetch == 64:
            cost -= 0.3
        if plan.prefetch == 64 and plan.column_tile == 64:
            cost -= 0.5
        if plan.nontemporal:
            cost += -0.5 if plan.column_tile == 64 else 0.1
        return cost

    axes = {"nontemporal": (False, True), "column_tile": (0, 32, 64), "prefetch": (16, 64)}
    search = Machine(cost).search(axes=axes)
    finish(search.run([]))
    assert cost(search.best) == pytest.approx(0.7)


def test_a_winner_by_chance_is_unmasked_in_the_last_race():
    # Whatever is not the default seems fast once, and never again.
    seen = set()

    def cost(plan):
        if plan == DEFAULT or plan in seen:
            return 1.0
        seen.add(plan)
        return 0.5

    search = Machine(cost).search(predict=lambda plan: 1.0)
    finish(search.run([]))
    assert search.best == DEFAULT


def test_what_the_model_thinks_hopeless_is_not_measured():
    machine = Machine(bowl)
    search = machine.search(predict=lambda plan: 10.0 if plan.column_tile else 1.0)
    finish(search.run([]))
    assert not any(plan.column_tile for plan in machine.calls)


@pytest.mark.parametrize("seconds", [3.0, 10.0, 40.0, 100.0])
def test_the_budget_is_kept(seconds):
    machine = Machine(bowl)
    finish(machine.search(seconds).run([]))
    assert machine.now <= seconds
    assert machine.now > 0


def test_time_running_out_is_told_and_the_last_race_still_run():
    machine = Machine(bowl)
    search = machine.search(25.0)
    finish(search.run([BEST]))
    assert search.exhausted
    assert search.best == BEST
    assert search.settled[DEFAULT]


def test_no_time_at_all_measures_nothing():
    machine = Machine(bowl)
    search = machine.search(0.5)
    finish(search.run([BEST]))
    assert machine.calls == []
    assert (search.best, search.exhausted) == (DEFAULT, True)


def test_an_interruption_leaves_what_was_found():
    machine = Machine(bowl)
    left = iter(range(20))

    def interrupt():
        if next(left, None) is None:
            raise KeyboardInterrupt

    search = machine.search(watch=interrupt)
    with pytest.raises(KeyboardInterrupt):
        finish(search.run([dataclasses.replace(DEFAULT, prefetch=32)]))
    assert search.best.prefetch == 32
    assert sum(len(times) for times in search.times.values()) == 21


def test_a_plan_that_cannot_run_is_tried_once_and_ends_no_search():
    machine = Machine(bowl, lambda number, plan: math.inf if plan.prefetch == 64 else 1.0)
    search = machine.search(predict=lambda plan: 0.0)
    finish(search.run([]))
    assert search.best == BEST
    assert not search.exhausted
    impossible = [plan for plan in machine.calls if plan.prefetch == 64]
    assert len(impossible) == len(set(impossible)) > 0
