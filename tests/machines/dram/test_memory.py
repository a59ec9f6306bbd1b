import numpy as np
import pytest

from onehop.errors import ArgumentError
from onehop.machines.dram import Access, DramReport, Memory, check, preset
from onehop.machines.dram.limits import lost_to_refresh
from onehop.machines.dram.memory import LEVELS

DDR5 = preset("DDR5_4800AN")
MEMORY = Memory(DDR5)


def test_gnnears_run_is_met():
    """DDR4-2400, 256 B at a time: GNNear's artifact has 9.83 M reads in 41.6 M clocks, 4 an ACT."""
    memory = Memory(preset("DDR4_2400"), scheduler="fr_fcfs_rows")
    report = memory.run(Access("random", 256), 100_000, "command")
    assert report.cycles / report.served == pytest.approx(41.6 / 9.83, rel=0.01)
    assert report.served / report.activations == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("level", LEVELS)
def test_a_report_adds_up(level):
    memory = Memory(DDR5, ranks=2)
    report = memory.run(Access("random", 256), 50_000, level)
    assert report.served == report.row_hits + report.row_misses + report.row_conflicts == 50_000
    assert report.time_ns == pytest.approx(report.cycles * 0.416)
    assert report.gbps == pytest.approx(50_000 * 64 / report.time_ns)
    assert report.percent_of_peak == pytest.approx(100 * report.gbps / DDR5.peak_gbps)
    assert report.energy["read"] == pytest.approx(50_000 * 5.68)
    assert report.energy["activate"] == pytest.approx(report.activations * 5.87)
    assert report.energy["refresh"] == pytest.approx(report.refreshes * 175.4)
    assert 0.405 < report.energy["standby"] / (report.time_ns * 2) < 0.625
    assert report.energy["write"] == 0
    assert report.energy_nj == pytest.approx(sum(report.energy.values()))
    assert (report.mean_read_latency_ns is None) == (level != "command")


@pytest.mark.parametrize("level", LEVELS)
def test_a_report_survives_json_and_is_the_same_every_time(level):
    first, second = (MEMORY.run(Access("random", 128), 20_000, level, seed=3) for _ in range(2))
    assert first == second == DramReport.from_json(first.to_json())


def test_another_seed_is_another_run_of_the_same_length():
    first, second = (MEMORY.run(Access(), 20_000, "command", seed=seed) for seed in (0, 1))
    assert first != second
    assert first.cycles == pytest.approx(second.cycles, rel=0.01)


def test_the_curve_goes_through_the_command_level_and_lies_between():
    at = [MEMORY.burst_cycles(Access("random", run), "curve") for run in (512, 768, 1024)]
    assert at[0] == MEMORY.burst_cycles(Access("random", 512), "command")
    assert at[2] == MEMORY.burst_cycles(Access("random", 1024), "command")
    assert min(at[0], at[2]) <= at[1] <= max(at[0], at[2])


def test_the_curves_counts_are_a_burst_s_times_the_bursts():
    access, bursts = Access("random", 128), 300_000
    memory = Memory(MEMORY.dram, ranks=2)
    cost, report = memory.cost(access, "curve"), memory.run(access, bursts, "curve")
    assert report.cycles == round(bursts * cost.cycles)
    assert report.activations == round(bursts * cost.activations)
    assert report.row_misses == round(bursts * cost.misses)
    assert report.row_hits + report.activations == bursts
    assert report.row_conflicts == report.activations - report.row_misses
    # Each of two ranks, once in every REFI.
    assert report.refreshes == 2 * int(report.cycles / memory.dram.timing.refi) > 0


def test_a_run_that_is_no_whole_burst_moves_whole_bursts():
    assert MEMORY.time_ns(10, Access("random", 65)) == MEMORY.time_ns(10, Access("random", 128))


def test_times_of_many_windows_are_those_of_each():
    runs = np.array([0.0, 1.0, 7.0, 1000.0])
    times = MEMORY.time_ns(runs, Access("random", 256))
    assert times.shape == (4,)
    assert times[0] == 0
    np.testing.assert_array_equal(times, [MEMORY.time_ns(n, Access("random", 256)) for n in runs])


def test_refresh_takes_last_data_to_first_data():
    assert lost_to_refresh(DDR5.timing, "read", 1) == 18 + 34 + 710 + 34 - 8
    assert lost_to_refresh(DDR5.timing, "write", 1) == 32 + 8 + 72 + 34 + 710 + 34 - 8
    assert lost_to_refresh(DDR5.timing, "read", 2) == 788 + 35


@pytest.mark.parametrize("level", LEVELS)
def test_more_ranks_never_give_more_than_the_bus(level):
    for ranks in (1, 2, 4):
        memory = Memory(DDR5, ranks=ranks)
        assert memory.burst_cycles(Access("random", 64), level) >= DDR5.timing.bl
        assert memory.gbps(Access("random", 64), level) <= DDR5.peak_gbps


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (Memory, {"queue": 0}, "queue"),
        (Memory, {"queue": 257}, "queue"),
        (Memory, {"ranks": 3}, "ranks"),
        (Memory, {"layout": "spiral"}, "layout"),
        (Memory, {"refresh": 1}, "refresh"),
        (Memory, {"scheduler": "fifo"}, "scheduler"),
        (Memory, {"dram": "DDR5_4800AN"}, "dram"),
        (Access, {"pattern": "zigzag"}, "pattern"),
        (Access, {"run_bytes": 0}, "run_bytes"),
        (Access, {"op": "erase"}, "op"),
        (Access, {"span_bytes": 0}, "span_bytes"),
        (Access, {"span_bytes": 1.5}, "span_bytes"),
    ],
)
def test_memories_and_traffic_that_cannot_be_are_refused(kind, change, message):
    with pytest.raises(ArgumentError, match=f"^{message}"):
        kind(**{**({"dram": DDR5} if kind is Memory else {}), **change})


def test_ranks_that_would_do_nothing_but_refresh_are_refused():
    short = DDR5.with_timing(refi=1500)
    with pytest.raises(ArgumentError, match="refreshing 64 in turn takes 3087 clocks of every 1500"):
        Memory(short, ranks=64)
    assert Memory(short, ranks=64, refresh=False).run(Access(), 500, "command").served == 500


def test_refreshes_that_are_late_are_made_up_for_in_their_order():
    """So many ranks, and so short a REFI, that refreshes take most of the time."""
    memory = Memory(DDR5.with_timing(refi=1500, rfc=400), ranks=16)
    run = memory.commands(memory.requests(Access(), 2000))
    assert run.counts.reads == 2000
    assert check(run.log, memory.dram) == []
    refreshed = [command.rank for command in run.log if command.name == "REF"]
    assert refreshed == [i % 16 for i in range(len(refreshed))]


def test_runs_stay_inside_their_span():
    access = Access("random", 256, span_bytes=64 * 1024)
    requests = MEMORY.requests(access, 4000)
    assert requests.bursts.max() == 1023
    assert len(np.unique(requests.bursts)) > 900
    # 16 rows of 4 KiB, in as many banks: all are soon open.
    assert MEMORY.run(access, 4000, "command").row_hits > 3500
    assert MEMORY.requests(Access("random", 256, span_bytes=1), 9).bursts.max() < 4


@pytest.mark.parametrize("level", ["command", "curve"])
def test_a_small_span_finds_rows_open(level):
    small, large = (MEMORY.cost(Access("random", 64, span_bytes=size), level) for size in (1 << 16, 1 << 30))
    assert small.activations < 0.1 < 0.99 < large.activations
    assert small.cycles < large.cycles


@pytest.mark.parametrize("requests", [0, -5, 2.0, None])
@pytest.mark.parametrize("level", LEVELS)
def test_no_number_of_requests_is_refused(level, requests):
    with pytest.raises(ArgumentError, match="requests: expected an integer"):
        MEMORY.run(Access(), requests, level)


def test_an_unknown_level_and_a_run_longer_than_the_ranks_are_refused():
    with pytest.raises(ArgumentError, match="level: expected one of command, curve, got 'gate'"):
        MEMORY.run(Access(), 5, "gate")
    with pytest.raises(ArgumentError, match="run_bytes: expected at most"):
        MEMORY.run(Access("random", 1 << 34), 5, "command")


def test_what_is_no_report_is_refused():
    with pytest.raises(ArgumentError, match="report"):
        DramReport.from_json('{"cycles": 3}')
