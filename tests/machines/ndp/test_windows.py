import itertools
from dataclasses import replace

import numpy as np
import pytest

from onehop.machines.ndp import toy
from onehop.machines.ndp.bounds import Paths, paths
from onehop.machines.ndp.durations import WindowTimes
from onehop.machines.ndp.retiling import ListingTimes
from onehop.machines.ndp.windows import Schedule, run
from onehop.plans.ndp import BETWEEN_BUNDLES, HOST_ORDERS
from tests.machines.ndp.recurrence import finish
from tests.pairs import pairwise


def drawn(seed, windows, ranks, channels, pod, transfer, lag, unit=1.0, lists=False):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 9, (windows, ranks)).astype(float)
    return WindowTimes(
        pod=pod,
        transfer=transfer,
        lag=lag,
        fill_ns=0.5,
        poll_ns=0.25,
        again_ns=0.125,
        pieces=rng.integers(1, 4, windows),
        adjacency=rng.integers(0, 9, (windows, ranks)).astype(float),
        reads=np.minimum(edges, rng.integers(0, 9, (windows, ranks))),
        edges=edges,
        read_ns=rng.integers(0, 5, ranks).astype(float),
        unit_ns=unit * rng.integers(0, 5, ranks),
        bundle_out=rng.integers(0, 5, (windows, ranks)).astype(float),
        bundle_in=rng.integers(0, 5, (windows, ranks)).astype(float),
        outputs=rng.integers(0, 30, (windows, channels)).astype(float),
        reduce=rng.integers(0, 40, windows).astype(float),
        finals=rng.integers(0, 9, (windows, channels)).astype(float),
        write_back=rng.integers(0, 9, (windows, ranks)).astype(float),
        listing=drawn_lists(rng, windows, ranks, channels) if lists else None,
    )


def drawn_lists(rng, windows, ranks, channels):
    """Nothing is listed for about one window of five."""
    some = rng.integers(0, 5, windows) > 0
    return ListingTimes(
        scan=some[:, None] * rng.integers(0, 9, (windows, ranks)).astype(float),
        lists=some[:, None] * rng.integers(1, 9, (windows, channels)).astype(float),
        merge=some * rng.integers(0, 60, windows).astype(float),
        tiles=some * rng.integers(1, 9, windows).astype(float),
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
@pairwise(
    order=HOST_ORDERS,
    lag=[1, 3],
    windows=[1, 2, 7],
    where=lambda order, transfer: order not in BETWEEN_BUNDLES or transfer == "host",
)
def test_the_native_recurrence_equals_the_plain_one(ranks, channels, pod, transfer, windows, lag, order):
    for seed in range(5):
        times = drawn(seed, windows, ranks, channels, pod, transfer, lag, lists=seed > 1)
        assert run(times, channels, order).total_ns == pytest.approx(
            finish(times, channels, order), rel=1e-12
        )


@pytest.mark.parametrize(("ranks", "channels", "pod", "transfer"), SHAPES)
def test_reading_ahead_never_costs_time(ranks, channels, pod, transfer):
    gained = 0.0
    for seed in range(20):
        times = drawn(seed, 9, ranks, channels, pod, transfer, 1)
        ahead, after = (run(times, channels, order).total_ns for order in ("ahead", "after"))
        assert ahead <= after + 1e-9
        gained += after - ahead
    assert gained > 0


@pytest.mark.parametrize(("ranks", "channels", "pod", "transfer"), SHAPES)
def test_no_order_is_faster_than_the_busier_path(ranks, channels, pod, transfer):
    for seed in range(10):
        times = drawn(seed, 7, ranks, channels, pod, transfer, 1, lists=seed % 2 == 1)
        found, schedule = paths(times, channels), run(times, channels, "after")
        # The busy times that the schedule adds up.
        assert found.dram_ns == pytest.approx(schedule.rank_busy_ns[:, :4].sum(axis=1).max())
        assert found.host_ns == pytest.approx(schedule.channel_busy_ns.sum(axis=1).max())
        for order in HOST_ORDERS if transfer == "host" else HOST_ORDERS[:2]:
            assert run(times, channels, order).total_ns >= found.bound_ns * (1 - 1e-12)


@pytest.mark.parametrize(
    ("windows_ns", "share"), [(100.0, 1.0), (110.0, 0.75), (140.0, 0.0), (200.0, 0.0), (90.0, 1.0)]
)
def test_the_hidden_share_by_hand(windows_ns, share):
    for found in (Paths(100.0, 40.0), Paths(40.0, 100.0)):
        assert found.bound_ns == 100.0
        assert found.hidden_share(windows_ns) == share
    assert Paths(100.0, 0.0).hidden_share(150.0) == 1.0


# One channel, two ranks, one pod, three windows, in ns: A = 2, X = 10 a bundle, W = 1, a bundle is read in 1
# and written in 1, Q = 8, Z = 8.
#
# after: window 0: A 0-2; bundle 0 read 2-3, written 3-4, X 4-14; bundle 1 to 6, X 14-24. Window 1: A 24-26;
# bundle 0 26-28, X 28-38; bundle 1 28-30, X 38-48; Q of window 0 30-38, Z 38-46, W 48-49. Window 2: A 49-51;
# bundle 0 51-53, X 53-63; bundle 1 53-55, X 63-73; Q 55-63, Z 63-71, W 73-74. Then Q 73-81, Z 81-89, W 89-90.
# ahead: window 1's A 24-26 as before; after its X, window 2's A 48-50, W 50-51; bundle 0 50-52, X 52-62;
# bundle 1 52-54, X 62-72; Q 54-62, Z 62-70, W 72-73. Then Q 72-80, Z 80-88, W 88-89.
# between: window 1's bundle 0 26-28, X 28-38; Q 28-36; bundle 1 36-38, X 38-48; Z 38-46; A of window 2 48-50,
# W 50-51. Window 2: bundle 0 50-52, X 52-62; Q 52-60; bundle 1 60-62, X 62-72; Z 62-70, W 72-73. Then as
# ahead: 89.
# early: window 0 as before; Q of window 0 from 24, as it is there, to 32, before bundle 0 of window 1, which
# the ranks have read at 26: it is read 32-33, written 33-34, X 34-44; bundle 1 34-36 (Q was the first part of
# two), X 44-54; Z 36-44; A of window 2 54-56, W 56-57. Window 2: Q 54-62; bundle 0 62-64, X 64-74; bundle 1
# 64-66, X 74-84; Z 66-74; W 84-85. Then Q 84-92, Z 92-100, W 100-101: a part that is longer than the wait
# delays the bundles.
SMALL_BY_HAND = {"after": 90, "ahead": 89, "between": 89, "early": 101}


def small(**changes):
    given = {
        "pod": 2,
        "transfer": "host",
        "lag": 1,
        "fill_ns": 0.0,
        "poll_ns": 0.0,
        "again_ns": 0.0,
        "pieces": np.ones(3, dtype=np.int64),
        "adjacency": np.full((3, 2), 2.0),
        "reads": np.ones((3, 2)),
        "edges": np.ones((3, 2)),
        "read_ns": np.full(2, 10.0),
        "unit_ns": np.zeros(2),
        "bundle_out": np.ones((3, 2)),
        "bundle_in": np.ones((3, 2)),
        "outputs": np.full((3, 1), 8.0),
        "reduce": np.zeros(3),
        "finals": np.full((3, 1), 8.0),
        "write_back": np.ones((3, 2)),
    }
    return WindowTimes(**{**given, **changes})


@pytest.mark.parametrize("order", HOST_ORDERS)
def test_orders_by_hand(order):
    schedule = run(small(), 1, order, record=3)
    assert schedule.total_ns == SMALL_BY_HAND[order]
    found = {(e.what, e.window): (e.start_ns, e.end_ns) for e in schedule.events if e.where == 0}
    # An event of a kind and window that happens twice, such as a bundle, is found by its last.
    expected = {
        "after": {"A": (49, 51), "Q": (30, 38), "Z": (38, 46), "bundle write": (29, 30), "W": (48, 49)},
        "ahead": {"A": (48, 50), "Q": (30, 38), "Z": (38, 46), "bundle write": (29, 30), "W": (50, 51)},
        "between": {"A": (48, 50), "Q": (28, 36), "Z": (38, 46), "bundle write": (37, 38), "W": (50, 51)},
        "early": {"A": (54, 56), "Q": (24, 32), "Z": (36, 44), "bundle write": (35, 36), "W": (56, 57)},
    }[order]
    windows = {"A": 2, "Q": 0, "Z": 0, "bundle write": 1, "W": 0}
    assert {what: found[what, window] for what, window in windows.items()} == expected


# The same, and the targets of each window are listed before: L = 3, lists are read in 2, merged in M, and
# the tile list is written in 1. Until the first one is there nothing else can begin: L 0-3, lists 3-5,
# merged at 5 + M, tile list 1: A of window 0 begins at 6 + M. For M = 4 and after, A 10-12, L of window 1
# 12-15; bundle 0 12-14, X 15-25; the lists 15-17, merged at 21; bundle 1 17-19, X 25-35; the tile list
# 21-22. Window 1: A 35-37, L 37-40; bundle 0 37-39, X 40-50; the lists 40-42, merged at 46; bundle 1 42-44,
# X 50-60; before Q 44-52, it is not merged; before Z it is: the tile list 52-53, Z 53-61, W 61-62. Window
# 2: A 62-64; bundle 0 64-66, X 66-76; bundle 1 66-68, X 76-86; Q 68-76, Z 76-84, W 86-87. Then Q 86-94, Z
# 94-102, W 102-103.
# For M = 30: A 36-38, L 38-41; bundle 0 38-40, X 41-51; lists 41-43, merged at 73; bundle 1 43-45, X 51-61;
# the tile list 73-74. Window 1: A 74-76, L 76-79; bundle 0 76-78, X 79-89; lists 79-81, merged at 111;
# bundle 1 81-83, X 89-99; Q 83-91, Z 91-99, W 99-100; the tile list 111-112. Window 2: A 112-114; bundle 0
# 114-116, X 116-126; bundle 1 116-118, X 126-136; Q 118-126, Z 126-134, W 136-137; Q 136-144, Z 144-152, W
# 152-153.
@pytest.mark.parametrize(("merge", "total", "tile_lists"), [(4, 103, (21, 52)), (30, 153, (73, 111))])
def test_listing_by_hand(merge, total, tile_lists):
    listing = ListingTimes(
        np.full((3, 2), 3.0), np.full((3, 1), 2.0), np.full(3, float(merge)), np.full(3, 1.0)
    )
    schedule = run(small(listing=listing), 1, "after", record=3)
    assert schedule.total_ns == total
    found = {(e.what, e.window): e.start_ns for e in schedule.events if e.where == 0}
    assert (found["tile list", 0], found["tile list", 1], found["tile list", 2]) == (5 + merge, *tile_lists)
    assert [found["lists", 0], found["L", 1]] == [3, 8 + merge]
    assert schedule.rank_busy_ns[0].tolist() == [6, 60, 3, 9, 0]
    assert schedule.channel_busy_ns[0].tolist() == [6, 6, 24, 24, 9]


def test_work_between_bundles_hides_behind_the_reduction():
    # Sixteen bundles on four channels. Reduction is paced by reads; Q and Z take most of it, bundles little.
    times = replace(
        drawn(0, 40, 16, 4, 16, "host", 1),
        pieces=np.ones(40, dtype=np.int64),
        reads=np.full((40, 16), 10.0),
        edges=np.full((40, 16), 10.0),
        read_ns=np.ones(16),
        unit_ns=np.zeros(16),
        bundle_out=np.full((40, 16), 0.5),
        bundle_in=np.full((40, 16), 0.5),
        outputs=np.full((40, 4), 60.0),
        finals=np.full((40, 4), 60.0),
        reduce=np.zeros(40),
    )
    share = {order: paths(times, 4).hidden_share(run(times, 4, order).total_ns) for order in HOST_ORDERS}
    assert share["between"] > 0.95
    assert share["ahead"] < 0.5
    assert share["after"] < share["ahead"]


def test_early_work_hides_behind_adjacency_that_takes_long():
    # A takes a third of the window, as with tile lists, and both paths have as much to do.
    windows = 40
    times = replace(
        drawn(0, windows, 16, 4, 8, "host", 1),
        pieces=np.ones(windows, dtype=np.int64),
        adjacency=np.full((windows, 16), 60.0),
        reads=np.full((windows, 16), 14.0),
        edges=np.full((windows, 16), 14.0),
        read_ns=np.ones(16),
        unit_ns=np.zeros(16),
        bundle_out=np.full((windows, 16), 2.0),
        bundle_in=np.full((windows, 16), 2.0),
        outputs=np.full((windows, 4), 80.0),
        finals=np.full((windows, 4), 60.0),
        reduce=np.zeros(windows),
    )
    total = {order: run(times, 4, order).total_ns for order in HOST_ORDERS}
    assert total["early"] < 0.95 * total["between"]
    assert total["between"] < total["ahead"] < total["after"]
    assert total["early"] < 1.15 * paths(times, 4).bound_ns


def test_parts_of_outputs_cost_their_accesses():
    # Two bundles a window: one part of Q, one of Z. With Q three times as long, four steps are three and one.
    times = small(pieces=np.full(3, 2, dtype=np.int64), outputs=np.full((3, 1), 24.0), again_ns=5.0)
    busy = run(times, 1, "between").channel_busy_ns[0]
    assert busy[2] == 3 * 24 + 2 * 2 * 5  # two windows have their Q in three parts, the last one in one
    assert busy[3] == 3 * 8
    assert run(times, 1, "ahead").channel_busy_ns[0, 2] == 3 * 24
    # Nothing to move needs no access.
    nothing = small(pieces=np.full(3, 2, dtype=np.int64), outputs=np.zeros((3, 1)), again_ns=5.0)
    busy = run(nothing, 1, "between").channel_busy_ns[0]
    assert busy[2] == 0
    assert busy[3] == 3 * 8 + 2 * 2 * 5  # all but one of four steps are the finals'


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


def test_the_gantt_has_every_rank_and_channel_in_72_steps():
    text = toy.gantt()
    rows = [line for line in text.splitlines() if line.startswith(("rank", "channel"))]
    assert {len(row) for row in rows} == {11 + 72}
    assert text.count("rank 0") == 5
    assert text.count("channel 0") == 4
    assert "(c) rank-pod, no bundle transfer: 23 ns" in text
    assert "rank 0     AAAAXXXXXXXXXXXX" in text


@pytest.mark.parametrize("order", HOST_ORDERS)
def test_no_two_things_happen_at_once_in_one_place(order):
    times = drawn(3, 6, 16, 4, 8, "host", 1, lists=True)
    events = run(times, 4, order, record=6).events
    for on_channel, where in {(e.on_channel, e.where) for e in events}:
        own = sorted((e.start_ns, e.end_ns) for e in events if (e.on_channel, e.where) == (on_channel, where))
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))


@pytest.mark.parametrize("order", HOST_ORDERS)
def test_busy_times_are_the_events(order):
    times = drawn(4, 6, 16, 4, 8, "host", 1, lists=True)
    schedule = run(times, 4, order, record=6)
    for rank in range(16):
        for phase, what in enumerate("AXWL"):
            spent = sum(
                e.end_ns - e.start_ns
                for e in schedule.events
                if e.what == what and e.where == rank and not e.on_channel
            )
            assert schedule.rank_busy_ns[rank, phase] == pytest.approx(spent)
    for channel in range(4):
        for phase, kinds in enumerate((["bundle read"], ["bundle write"], "Q", "Z", ["lists", "tile list"])):
            spent = sum(
                e.end_ns - e.start_ns for e in schedule.events if e.what in kinds and e.where == channel
            )
            assert schedule.channel_busy_ns[channel, phase] == pytest.approx(spent)
    if order not in BETWEEN_BUNDLES:
        assert schedule.channel_busy_ns[:, 2].sum() == pytest.approx(times.outputs.sum())
    assert schedule.busy_ns[:, 2].sum() == pytest.approx(schedule.rank_busy_ns[:, :4].sum() / 16)


def test_more_output_buffers_never_cost_time():
    for seed in range(5):
        times = drawn(seed, 12, 4, 2, 1, "none", 1)
        assert run(replace(times, lag=3), 2, "after").total_ns <= run(times, 2, "after").total_ns + 1e-9


def test_a_slow_host_binds_windows_and_a_slow_rank_others():
    times = drawn(0, 8, 4, 2, 1, "none", 1)
    slow_host = replace(times, outputs=times.outputs + 1000)
    # In the first window's step there is nothing to read yet.
    assert run(slow_host, 2, "after").bound()["host"] == 7
    slow_rank = times.adjacency.copy()
    slow_rank[:, 0] += 10_000
    assert run(replace(times, adjacency=slow_rank), 2, "after").bound()["imbalance"] == 8
    assert run(replace(times, adjacency=times.adjacency + 10_000), 2, "after").bound()["dram"] == 8


def test_no_windows_take_no_time():
    times = drawn(0, 0, 4, 2, 1, "none", 1)
    assert run(times, 2, "after").total_ns == 0


def test_what_binds_a_window_by_hand():
    # Busiest channel, busiest rank, mean rank: ranks win ties, and 1.25 times the mean is still even.
    busy = np.array([[5.0, 5.0, 5.0], [5.1, 5.0, 5.0], [1.0, 5.0, 4.0], [1.0, 5.0, 3.9]])
    schedule = Schedule(0.0, np.zeros((1, 5)), np.zeros((1, 5)), np.zeros(4), busy, [])
    assert schedule.bounds() == ["dram", "host", "dram", "imbalance"]
    assert schedule.bound() == {"host": 1, "imbalance": 1, "dram": 2}
