"""The command level against the rules, on both sides, and against the controller clock by clock."""

from dataclasses import MISSING, fields

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from onehop.errors import ArgumentError
from onehop.machines.dram import Access, Command, Memory, Requests, Timing, check, preset, rules
from onehop.machines.dram.command import COMMANDS
from onehop.machines.dram.rules import _place
from tests.machines.dram.naive import NaiveController
from tests.pairs import pairwise

DDR5, DDR4 = preset("DDR5_4800AN"), preset("DDR4_2400")


def key_of(rule):
    return (rule.name, rule.scope, rule.before, rule.after)


# Each clock is another than the preset's, by different amounts, so that no rule passes for its neighbour.
SHIFTED = DDR5.with_timing(
    cl=37, cwl=31, rcd=36, rp=41, ras=85, rc=131, ccd_s=9, ccd_l=15, ccd_l_wr=53, rrd_s=11, rrd_l=17, faw=61,
    rtp=25, wr=75, wtr_s=13, wtr_l=45, rtw=7, ppd=3, cs=5, rfc=600, refi=4001,
)  # fmt: skip
# The bus alone keeps bursts apart: banks and ranks could follow each other sooner.
BUSY = DDR5.with_timing(ccd_s=5, ccd_l=6, ccd_l_wr=7)
DEVICES = {
    "DDR5": DDR5,
    "shifted": SHIFTED,
    "busy": BUSY,
    "DDR4": DDR4.with_timing(refi=3001),
}
# What no log shows as closely as it may be, and why. Any other rule is met exactly on every device.
AFTER_PREA_COMES_REF = ("RP_ALL", "rank", ("PREA",), ("ACT",))
BEFORE_REF_COMES_PREA = ("RP", "rank", ("PRE",), ("REF",))
REFS_ARE_REFI_APART = ("RFC", "rank", ("REF",), ("PREA", "REF"))
OTHER_COMMANDS = {"RDA", "WRA", "REFSB"}
NEVER_CLOSE = {
    name: {AFTER_PREA_COMES_REF, BEFORE_REF_COMES_PREA, REFS_ARE_REFI_APART}
    # These go out only where rows are closed after some accesses, or with same-bank refresh: further below.
    | {key_of(rule) for rule in rules(device.timing) if {*rule.before[:1], *rule.after[:1]} & OTHER_COMMANDS}
    for name, device in DEVICES.items()
}
# CCD_S is longer than BL there, and BL longer than all of CCD here.
NEVER_CLOSE["shifted"] |= {("BL", "bus", ("RD", "RDA"), ("RD", "RDA"))}
NEVER_CLOSE["busy"] |= {key_of(rule) for rule in rules(BUSY.timing) if rule.name.startswith("CCD")}


def requests(memory, count, write_share, span, seed=0):
    rng = np.random.default_rng(seed)
    bursts = rng.integers(0, min(span, memory.address_layout.bursts), count)
    return Requests(bursts, rng.random(count) < write_share)


def logs(dram):
    """Commands of traffic of several kinds, in which nearly every rule is met as closely as can be."""
    for ranks, write_share, layout, queue in (
        (1, 0.0, "row_first", 32),
        (1, 0.5, "bg_first", 32),
        (2, 0.5, "mop4", 32),
        (1, 1.0, "row_first", 32),
        (1, 0.0, "row_first", 2),
        (2, 0.0, "bg_first", 8),
    ):
        memory = Memory(dram, ranks=ranks, layout=layout, queue=queue)
        yield list(memory.commands(requests(memory, 1500, write_share, span=2**14)).log)
    memory = Memory(dram, layout="bg_first")
    yield list(memory.commands(memory.requests(Access("sequential"), 2500)).log)


def least_distances(log, table):
    """By rule: the least number of clocks between two commands that it holds for."""
    least = {}
    waits = {name: [rule for rule in table if name in rule.after] for name in COMMANDS}
    counts = {name: [rule for rule in table if name in rule.before] for name in COMMANDS}
    past = {}
    for command in log:
        for rule in waits[command.name]:
            if rule.scope == "other_rank":
                places = [(rank,) for rank in range(2) if rank != command.rank]
            else:
                places = [_place(rule.scope, command)]
            for name in rule.before:
                for place in places:
                    seen = past.get((key_of(rule), name, place), [])
                    if len(seen) >= rule.window:
                        distance = command.clock - seen[-rule.window]
                        least[key_of(rule)] = min(distance, least.get(key_of(rule), distance))
        for rule in counts[command.name]:
            past.setdefault((key_of(rule), command.name, _place(rule.scope, command)), []).append(
                command.clock
            )
    return least


@pytest.fixture(scope="module", params=DEVICES)
def found(request):
    """A device's name, its logs, and the least distances in them."""
    dram = DEVICES[request.param]
    all_logs = list(logs(dram))
    least = {}
    for log in all_logs:
        for key, distance in least_distances(log, rules(dram.timing)).items():
            least[key] = min(distance, least.get(key, distance))
    return request.param, all_logs, least


def test_a_command_goes_out_on_time_and_never_a_clock_early(found):
    name, _, least = found
    for rule in rules(DEVICES[name].timing):
        if key_of(rule) in NEVER_CLOSE[name]:
            assert least.get(key_of(rule), rule.clocks + 1) > rule.clocks, rule
        else:
            assert least[key_of(rule)] == rule.clocks, rule


def pair(rule, gap):
    """Commands that a rule holds between, the last so many clocks after the one it counts from."""
    other = 1 if rule.scope == "other_rank" else 0
    # The same bank, the same bank group or different ones, as the scope asks.
    places = {
        "bank": [(0, 0, 0)] * 5,
        "bank_group": [(0, 0, 0), (0, 0, 1)],
        "other_rank": [(0, 0, 0), (other, 0, 0)],
        "rank": [(0, i, 0) for i in range(5)],
        "bus": [(0, i, 0) for i in range(5)],
    }[rule.scope]
    first = [
        Command(1000, rule.before[0], *places[i], 7 if rule.before[0] not in ("PRE", "PREA", "REF") else -1)
        for i in range(rule.window)
    ]
    return [*first, Command(1000 + gap, rule.after[0], *places[rule.window], 7)]


def broken(commands, dram, rule):
    """Whether the check names this rule for the last command."""
    last = len(commands) - 1
    return any(v.place == last and v.reason.startswith(f"{rule.name}: ") for v in check(commands, dram))


@pytest.mark.parametrize("dram", DEVICES.values(), ids=DEVICES)
def test_the_check_refuses_one_clock_early_and_takes_what_is_on_time(dram):
    for rule in rules(dram.timing):
        assert broken(pair(rule, rule.clocks - 1), dram, rule), rule
        assert not broken(pair(rule, rule.clocks), dram, rule), rule


def test_the_check_passes_every_log(found):
    name, all_logs, _ = found
    for log in all_logs:
        assert check(log, DEVICES[name]) == []


@pytest.mark.parametrize("moved", [3, 30, 300, 1500])
def test_the_check_finds_a_command_that_was_moved(found, moved):
    """Commands that wait for a rule are found when they are moved by a clock; every rule above has such."""
    name, all_logs, _ = found
    log = list(all_logs[0])
    log[moved] = log[moved]._replace(clock=log[moved - 1].clock)
    assert check(log, DEVICES[name])


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([Command(1, "RD", 0, 0, 0, 5, 0)], "where none is open"),
        ([Command(1, "ACT", 0, 0, 0, 5), Command(500, "WR", 0, 0, 0, 6, 0)], "where 5 is open"),
        ([Command(1, "ACT", 0, 0, 0, 5), Command(500, "ACT", 0, 0, 0, 6)], "where row 5 is open"),
        ([Command(1, "ACT", 0, 0, 0, 5), Command(500, "REF", 0)], "REF where a row is open"),
    ],
    ids=["no row", "other row", "open already", "refresh"],
)
def test_the_check_knows_the_state_of_banks(commands, reason):
    assert [v.reason for v in check(commands, DDR5) if reason in v.reason]


@pytest.mark.parametrize(
    "name",
    [
        f.name
        for f in fields(Timing)
        if f.default is MISSING and f.name not in ("clock_ps", "command_clocks", "bl")
    ],
)
def test_every_timing_matters(name):
    """Making any of them longer changes when commands go out."""
    longer = DDR5.with_timing(**{name: getattr(DDR5.timing, name) + (40 if name == "rc" else 3)})
    changed = False
    for ranks, share, layout in ((1, 0.3, "bg_first"), (2, 0.5, "mop4"), (1, 0.0, "row_first")):
        runs = [
            Memory(dram, ranks=ranks, layout=layout).commands(
                requests(Memory(DDR5, ranks=ranks, layout=layout), 1500, share, span=2**14)
            )
            for dram in (DDR5, longer)
        ]
        changed |= runs[0].counts != runs[1].counts
    assert changed


small = DDR5.with_timing(refi=700, rfc=100)


def often_refreshed(name):
    """A shipped device with refreshes as close together as its rows can be closed."""
    dram = preset(name)
    t = dram.timing
    sb = {}
    if t.rfc_sb:
        closing = max(t.ras, t.cwl + t.bl + t.wr) + dram.organisation.refresh_set * t.ppd + t.rp
        sb = {"rfc_sb": 60, "refsb_refsb": 40, "refi_sb": 2 * closing + 37}
    return dram.with_timing(rfc=100, refi=700, **sb)


KINDS = ("DDR3_1600K", "DDR4_2400", "DDR5_4800AN", "LPDDR5_6400", "HBM1_1000", "HBM2_2000", "HBM3_6400")


@pairwise(
    seed=range(6),
    refresh_mode=["all_bank", "same_bank"],
    close_after=[0, 1, 2],
    name=KINDS,
    where=lambda name, refresh_mode: name[:4] not in ("DDR3", "DDR4") or refresh_mode == "all_bank",
)
def test_every_device_goes_as_clock_by_clock_with_each_policy(name, close_after, refresh_mode, seed):
    dram = often_refreshed(name)
    rng = np.random.default_rng([seed, close_after])
    memory = Memory(
        dram,
        ranks=1 + seed % 2,
        layout=("row_first", "bg_first", "mop4")[seed % 3],
        queue=int(rng.choice([2, 5, 8, 32])),
        scheduler=("fr_fcfs", "fr_fcfs_rows")[int(rng.integers(2))],
        refresh_mode=refresh_mode,
        close_after=close_after,
    )
    wanted = requests(
        memory, 120, float(rng.choice([0.0, 0.3, 0.7])), int(rng.choice([64, 1024, 2**20])), seed
    )
    log = list(memory.commands(wanted).log)
    assert log == NaiveController(memory, wanted).run()
    assert check(log, dram) == []


def test_the_policies_use_their_commands():
    memory = Memory(often_refreshed("LPDDR5_6400"), refresh_mode="same_bank", close_after=1)
    names = {command.name for command in memory.commands(requests(memory, 500, 0.5, span=64)).log}
    assert {"ACT", "ACT2", "RD", "WR", "RDA", "WRA", "PRE", "REFSB"} <= names


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    write_share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    span=st.sampled_from([64, 1024, 2**27]),
    ranks=st.sampled_from([1, 2, 4]),
    layout=st.sampled_from(["row_first", "bg_first", "mop4"]),
    queue=st.sampled_from([1, 2, 5, 8]),
    scheduler=st.sampled_from(["fr_fcfs", "fr_fcfs_rows"]),
    refresh=st.booleans(),
    dram=st.sampled_from([small, DDR4]),
)
@example(0, 0.5, 1024, 2, "mop4", 5, "fr_fcfs_rows", True, small)
@example(1, 0.3, 64, 4, "row_first", 8, "fr_fcfs", True, small)
def test_events_change_nothing_beside_going_clock_by_clock(
    seed, write_share, span, ranks, layout, queue, scheduler, refresh, dram
):
    memory = Memory(dram, ranks, layout, queue, refresh, scheduler)
    wanted = requests(memory, 80, write_share, span, seed)
    assert list(memory.commands(wanted).log) == NaiveController(memory, wanted).run()


def test_counts_are_those_of_the_log():
    memory = Memory(DDR5, ranks=2, layout="mop4")
    run = memory.commands(requests(memory, 3000, 0.4, span=2**12))
    names = [command.name for command in run.log]
    counts = run.counts
    assert (names.count("RD"), names.count("WR")) == (counts.reads, counts.writes)
    assert (names.count("ACT"), names.count("REF")) == (counts.activations, counts.refreshes)
    assert counts.reads + counts.writes + counts.forwarded + counts.coalesced == 3000
    assert counts.row_hits + counts.row_misses + counts.row_conflicts == counts.reads + counts.writes
    assert counts.forwarded > 0
    assert counts.coalesced > 0


def test_a_single_read_takes_rcd_cl_and_bl():
    run = Memory(DDR5).commands(Requests(np.array([5]), np.array([0])))
    assert [(c.clock, c.name) for c in run.log] == [(1, "ACT"), (1 + 34, "RD")]
    assert run.counts.cycles == 1 + 34 + 34 + 8
    assert run.counts.read_latency_cycles == run.counts.cycles


def test_no_requests_take_no_time():
    run = Memory(DDR5).commands(Requests(np.array([], dtype=np.int64), np.array([], dtype=np.uint8)))
    assert run.counts.cycles == 0
    assert len(run.log) == 0


@pytest.mark.parametrize("burst", [-1, 1 << 27])
def test_bursts_outside_the_ranks_are_refused(burst):
    with pytest.raises(ArgumentError, match="bursts from 0 to 134217727"):
        Memory(DDR5).serve(Requests(np.array([burst]), np.array([0])))


@pytest.mark.parametrize(
    ("bursts", "writes"),
    [
        (np.zeros((2, 2), int), np.zeros(4, int)),
        (np.zeros(3), np.zeros(3, int)),
        (np.zeros(3, int), np.zeros(2, int)),
    ],
    ids=["table", "fractions", "lengths"],
)
def test_requests_that_are_none_are_refused(bursts, writes):
    with pytest.raises(ArgumentError, match="requests"):
        Requests(bursts, writes)
