"""The explanation of what binds: its limits by hand, and what it refuses."""

from dataclasses import replace

import pytest

from onehop.errors import ArgumentError, ConfigurationError
from onehop.machines.dram import Access, Limits, Memory, preset
from onehop.machines.ndp import load

DDR5 = preset("DDR5_4800AN")
DDR4 = preset("DDR4_2400")


@pytest.mark.parametrize(
    ("memory", "access", "binds", "clocks"),
    [
        # FAW 48 lets four rows open, a burst each.
        (Memory(DDR5), Access("random", 64), "rows", 12),
        (Memory(DDR5.with_timing(faw=32)), Access("random", 64), "bus", 8),
        (Memory(DDR5, layout="bg_first"), Access("sequential"), "bus", 8),
        # Four ranks open rows for one bus.
        (Memory(DDR5, ranks=4), Access("random", 64), "rows", 3),
        # Rows of 128 bursts, a queue of 32: bursts of one bank group, CCD_L 6, for half of the time, and two
        # bank groups in turns, BL 4, for the other; RCD 16 of each row is the first row's alone.
        (Memory(DDR4), Access("sequential"), "bank_groups", (4 + 6) / 2 + 16 * (1 - 4 / 6) / 128),
        # A queue of 64 always has two rows' bursts.
        (Memory(DDR4, queue=64), Access("sequential"), "bank_groups", 4 + 16 * (1 - 4 / 6) / 128),
        # RD 2 clocks; ACT 2 and PRE 1 for every burst.
        (Memory(DDR5.with_timing(bl=8, faw=4, rrd_s=1)), Access("random", 64), "commands", 5),
    ],
    ids=["FAW", "FAW 32", "bank groups first", "4 ranks", "DDR4", "DDR4, queue 64", "commands"],
)
def test_the_limits_are_those_worked_out_by_hand(memory, access, binds, clocks):
    found = memory.limits(access)
    value = found.clocks()[binds]
    assert value == pytest.approx(clocks)
    if binds != "commands" and memory.ranks == 1:
        assert found.binds == binds


def test_the_strictest_limit_is_named_and_refreshes_lengthen_it():
    found = Limits(bus=8, bank_groups=6, rows=12, commands=5, refresh_share=0.25)
    assert (found.binds, found.cycles) == ("rows", 16)
    assert replace(found, rows=8.05).binds == "bus"
    assert replace(found, bank_groups=13).binds == "bank_groups"


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("DDR4_2400", 1 + 1 + 1),
        ("DDR5_4800AN", 2 + 2 + 1),
        # ACT is two commands.
        ("LPDDR5_6400", 1 + 2 + 1),
        # RD has a bus of its own, so ACT and PRE bind.
        ("HBM2_2000", 2 + 1),
    ],
)
def test_the_command_bus_carries_every_half_of_an_act(name, commands):
    assert Memory(preset(name)).limits(Access("random", 1)).commands == commands


def test_without_refreshes_none_is_counted():
    assert Memory(DDR5, refresh=False).limits(Access()).refresh_share == 0
    # RTP + RP + RFC + RCD - BL of every REFI.
    assert Memory(DDR5).limits(Access()).refresh_share == pytest.approx(788 / 9375)


@pytest.mark.parametrize(
    ("memory", "access", "sentence"),
    [
        (Memory(DDR5, close_after=1), Access(), "open pages only"),
        (Memory(preset("LPDDR5_6400"), refresh_mode="same_bank"), Access(), "refreshes of all banks only"),
        (Memory(DDR5), Access(write_share=0.5), "reads alone or writes alone"),
        (Memory(DDR5), Access(span_bytes=1 << 20), "all over the ranks only"),
    ],
)
def test_what_the_formula_does_not_know_is_refused(memory, access, sentence):
    with pytest.raises(ArgumentError, match=f"limits: .*{sentence}"):
        memory.limits(access)
    assert sentence in memory.why_no_limits(access)


def test_refreshes_by_bank_that_are_off_do_not_matter():
    memory = Memory(preset("LPDDR5_6400"), refresh_mode="same_bank", refresh=False)
    assert memory.why_no_limits(Access()) == ""
    assert memory.limits(Access()).refresh_share == 0


def test_the_closed_form_is_no_level():
    sentence = "level: the closed form is no level of simulation .* take command or curve"
    memory = Memory(DDR5)
    for ask in (
        lambda: memory.burst_cycles(Access(), "closed"),
        lambda: memory.cost(Access(), "closed"),
        lambda: memory.gbps(Access(), "closed"),
        lambda: memory.time_ns(3, Access(), "closed"),
        lambda: memory.run(Access(), 5, "closed"),
    ):
        with pytest.raises(ArgumentError, match=f"^{sentence}"):
            ask()
    with pytest.raises(ConfigurationError, match=f"^dram.{sentence}"):
        load("grande_16").change(dram={"level": "closed"})


@pytest.mark.parametrize("pattern", ["random", "sequential"])
def test_mixed_traffic_has_no_curve(pattern):
    with pytest.raises(ArgumentError, match="level: expected command, which alone knows mixed"):
        Memory(DDR5).cost(Access(pattern, write_share=0.5), "curve")
