from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from onehop.machines.ndp import toy
from onehop.machines.ndp.windows import WindowTimes, run
from tests.machines.ndp.recurrence import finish


def drawn(seed, windows, ranks, channels, pod, transfer, lag, unit=1.0):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 9, (windows, ranks)).astype(float)
    return WindowTimes(
        pod=pod,
        transfer=transfer,
        lag=lag,
        fill_ns=0.5,
        poll_ns=0.25,
        pieces=rng.integers(1, 4, windows),
        adjacency=rng.integers(0, 9, (windows, ranks)).astype(float),
        reads=np.minimum(edges, rng.integers(0, 9, (windows, ranks))),
        edges=edges,
        read_ns=rng.integers(1, 5, ranks).astype(float),
        unit_ns=unit * rng.integers(0, 5, ranks),
        bundle_out=rng.integers(0, 5, (windows, ranks)).astype(float),
        bundle_in=rng.integers(0, 5, (windows, ranks)).astype(float),
        outputs=rng.integers(0, 30, (windows, channels)).astype(float),
        reduce=rng.integers(0, 40, windows).astype(float),
        finals=rng.integers(0, 9, (windows, channels)).astype(float),
        write_back=rng.integers(0, 9, (windows, ranks)).astype(float),
    )


SHAPES = [
    (1, 1, 1, "none"),
    (4, 2, 1, "none"),
    (8, 2, 2, "link"),
    (8, 2, 2, "host"),
    (8, 2, 4, "host"),
    (8, 2, 8, "host"),
    (16, 4, 8, "host"),
    (16, 4, 16, "host"),
]


@pytest.mark.parametrize(("ranks", "channels", "pod", "transfer"), SHAPES)
@pytest.mark.parametrize("windows", [1, 2, 7])
@pytest.mark.parametrize("lag", [1, 3])
def test_the_native_recurrence_equals_the_plain_one(ranks, channels, pod, transfer, windows, lag):
    for seed in range(5):
        times = drawn(seed, windows, ranks, channels, pod, transfer, lag)
        assert run(times, channels).total_ns == pytest.approx(finish(times, channels), rel=1e-12)


# By hand, in ns. A = 2; X of a rank's own bundle 6 and 4 for whole vectors, 3 and 2 for halves; Q = 4 of
# whole partial sums, 2 of finished halves; Z = 2; W = 1; a bundle is read in 1, a copy of it written in 1.
#
# (c) window 0: A 0-2, X to 8 and 6. Window 1: A to 10 and 8, X to 16 and 12; meanwhile Q of window 0 8-12 and
# Z     12-14; W of window 0 16-17 and 14-15. Then Q of window 1 16-20, Z 20-22, W 22-23.
# (e) window 0: A 0-2; bundle 0 read 2-3, written 3-4, X 4-7; bundle 1 read 4-5, written 5-6, X 7-9. Window 1:
# A 9-11;     bundle 0 read 11-12, written 12-13, X 13-16; bundle 1 read 13-14, written 14-15, X 16-18; Q of
# window 0 15-17,     Z 17-19, W 19-20. Then Q of window 1 19-21, Z 21-23, W 23-24.
# (d) as (e), with 2 to write a bundle: X 5-8 and 8-10; A 10-12, X 15-18 and 18-20; Q of window 0 18-20, Z
# 20-22,     W 22-23. Then Q of window 1 22-24, Z 24-26, W 26-27.
# (a) twice A 2, X 6, A 2, X 4, W 1 and 1. (b) twice adjacency 4, instructions 2, X 6, Q 4, Z 2.
BY_HAND = {"a": 32, "b": 36, "c": 23, "d": 27, "e": 24}


@pytest.mark.parametrize("letter", BY_HAND)
def test_the_toy_by_hand(letter):
    case = next(case for case in toy.cases() if case.name.startswith(f"({letter})"))
    assert case.total_ns == BY_HAND[letter]


def test_the_toys_events_by_hand():
    case = next(case for case in toy.cases() if case.name.startswith("(c)"))
    found = {(e.what, e.window, e.where): (e.start_ns, e.end_ns) for e in case.events}
    assert found == {
        ("A", 0, 0): (0, 2),
        ("A", 0, 1): (0, 2),
        ("X", 0, 0): (2, 8),
        ("X", 0, 1): (2, 6),
        ("A", 1, 0): (8, 10),
        ("A", 1, 1): (6, 8),
        ("X", 1, 0): (10, 16),
        ("X", 1, 1): (8, 12),
        ("Q", 0, 0): (8, 12),
        ("Z", 0, 0): (12, 14),
        ("W", 0, 0): (16, 17),
        ("W", 0, 1): (14, 15),
        ("Q", 1, 0): (16, 20),
        ("Z", 1, 0): (20, 22),
        ("W", 1, 0): (22, 23),
        ("W", 1, 1): (22, 23),
    }


def test_the_gantt_has_every_rank_and_channel():
    text = toy.gantt(columns=72)
    assert text.count("rank 0") == 5
    assert text.count("channel 0") == 4
    assert "(c) rank-pod, no bundle transfer: 23 ns" in text
    assert "rank 0     AAAAXXXXXXXXXXXX" in text


def test_no_two_things_happen_at_once_in_one_place():
    times = drawn(3, 6, 16, 4, 8, "host", 1)
    events = run(times, 4, record=6).events
    for on_channel, where in {(e.on_channel, e.where) for e in events}:
        own = sorted((e.start_ns, e.end_ns) for e in events if (e.on_channel, e.where) == (on_channel, where))
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def test_busy_times_are_the_events():
    times = drawn(4, 6, 16, 4, 8, "host", 1)
    schedule = run(times, 4, record=6)
    for rank in range(16):
        for phase, what in enumerate("AXW"):
            spent = sum(
                e.end_ns - e.start_ns
                for e in schedule.events
                if e.what == what and e.where == rank and not e.on_channel
            )
            assert schedule.rank_busy_ns[rank, phase] == pytest.approx(spent)
    assert schedule.channel_busy_ns[:, 2].sum() == pytest.approx(times.outputs.sum())
    assert schedule.busy_ns[:, 2].sum() == pytest.approx(schedule.rank_busy_ns[:, :3].sum() / 16)


def test_more_output_buffers_never_cost_time():
    for seed in range(5):
        times = drawn(seed, 12, 4, 2, 1, "none", 1)
        assert run(replace(times, lag=3), 2).total_ns <= run(times, 2).total_ns + 1e-9


def test_a_slow_host_binds_windows_and_a_slow_rank_others():
    times = drawn(0, 8, 4, 2, 1, "none", 1)
    slow_host = replace(times, outputs=times.outputs + 1000)
    # In the first window's step there is nothing to read yet.
    assert run(slow_host, 2).bound()["host"] == 7
    slow_rank = times.adjacency.copy()
    slow_rank[:, 0] += 10_000
    assert run(replace(times, adjacency=slow_rank), 2).bound()["imbalance"] == 8
    assert run(replace(times, adjacency=times.adjacency + 10_000), 2).bound()["dram"] == 8


def test_no_windows_take_no_time():
    times = drawn(0, 0, 4, 2, 1, "none", 1)
    assert run(times, 2).total_ns == 0
