"""The standards' distances around refreshes, as numbers: the check, and the command level's logs."""

from itertools import pairwise

import numpy as np
import pytest

from onehop.machines.dram import Command, Memory, Requests, check, preset

FIRST = 100_000
# Device, the rule that it tests, the earlier commands (name, clock, bank group, bank), the later one, and the
# first clock at which that may go out. Clocks of HBM3 are half clocks. An ACT of n clocks acts in its last.
REFSB_AND_ACTS = [("REFSB", 0, 0, 0), ("ACT", 4, 1, 1), ("ACT", 8, 2, 1), ("ACT", 12, 3, 1)]
WR_THEN_RDA = [("ACT", -99, 0, 0), ("WR", 0, 0, 0), ("RDA", 15, 0, 0)]
CASES = [
    # JESD235 and JESD238: a REF of one bank to the next of the pseudo-channel, tRREFD, 8 ns.
    ("HBM1_1000", "REFSB_REFSB", [("REFSB", 0, 0, 0)], ("REFSB", 1, 0), 4),
    ("HBM2_2000", "REFSB_REFSB", [("REFSB", 0, 0, 0)], ("REFSB", 1, 0), 8),
    ("HBM3_6400", "REFSB_REFSB", [("REFSB", 0, 0, 0)], ("REFSB", 1, 0), 16),
    # JESD209-5B: tpbR2pbR, 90 ns.
    ("LPDDR5_6400", "REFSB_REFSB", [("REFSB", 0, 0, 0)], ("REFSB", 1, 0), 72),
    # The bank itself: tRFCsb, tRFCpb.
    ("HBM1_1000", "RFC_SB", [("REFSB", 0, 0, 0)], ("REFSB", 0, 0), 80),
    ("HBM2_2000", "RFC_SB", [("REFSB", 0, 0, 0)], ("REFSB", 0, 0), 160),
    ("HBM3_6400", "RFC_SB", [("REFSB", 0, 0, 0)], ("REFSB", 0, 0), 640),
    ("LPDDR5_6400", "RFC_SB", [("REFSB", 0, 0, 0)], ("REFSB", 0, 0), 112),
    # All banks and one bank: tRFC after the former, tRFCsb or tRFCpb after the latter.
    ("HBM1_1000", "RFC", [("REF", 0, -1, -1)], ("REFSB", 1, 0), 80),
    ("HBM2_2000", "RFC", [("REF", 0, -1, -1)], ("REFSB", 1, 0), 350),
    ("HBM3_6400", "RFC", [("REF", 0, -1, -1)], ("REFSB", 1, 0), 832),
    ("LPDDR5_6400", "RFC", [("REF", 0, -1, -1)], ("REFSB", 1, 0), 224),
    ("DDR3_1600K", "RFC", [("REF", 0, -1, -1)], ("REF", -1, -1), 208),
    ("DDR3_1600K", "RFC", [("REF", 0, -1, -1)], ("PREA", -1, -1), 208),
    ("DDR3_1600K", "RFC", [("REF", 0, -1, -1)], ("ACT", 0, 5), 208),
    ("DDR4_2400", "RFC", [("REF", 0, -1, -1)], ("REF", -1, -1), 420),
    ("DDR4_2400", "RFC", [("REF", 0, -1, -1)], ("PREA", -1, -1), 420),
    ("HBM1_1000", "RFC_SB", [("REFSB", 0, 0, 0)], ("REF", -1, -1), 80),
    ("HBM2_2000", "RFC_SB", [("REFSB", 0, 0, 0)], ("REF", -1, -1), 160),
    ("LPDDR5_6400", "RFC_SB", [("REFSB", 0, 0, 0)], ("PREA", -1, -1), 112),
    # JESD238, table 93: tRRDL and tRRDS are of ACT to ACT or to a REF of one bank. ACT acts in its third.
    ("HBM1_1000", "RRD_L", [("ACT", 0, 0, 0)], ("REFSB", 0, 1), 3 + 1),
    ("HBM3_6400", "RRD_L", [("ACT", 0, 0, 0)], ("REFSB", 0, 1), 10 + 2),
    ("HBM3_6400", "RRD_S", [("ACT", 0, 0, 0)], ("REFSB", 1, 0), 8 + 2),
    # Of DDR5's same bank of every bank group, one is of the ACT's group.
    ("DDR5_4800AN", "RRD_L", [("ACT", 0, 3, 0)], ("REFSB", -1, 1), 12 + 1),
    # JESD209-5B, tRPab: 21 ns and not 18.
    ("LPDDR5_6400", "RP_ALL", [("PREA", 0, -1, -1)], ("ACT", 0, 0), 17),
    ("LPDDR5_6400", "RP_ALL", [("PREA", 0, -1, -1)], ("REF", -1, -1), 17),
    ("LPDDR5_6400", "RP_ALL", [("PREA", 0, -1, -1)], ("REFSB", 0, 0), 17),
    ("HBM2_2000", "RP_ALL", [("PREA", 0, -1, -1)], ("ACT", 0, 0), 14 - 1),
    # JESD209-5B, section 8.1.2: at most four banks are activated, or refreshed by REFpb, in tFAW.
    ("LPDDR5_6400", "FAW", [("ACT", 4 * i, i, 0) for i in range(4)], ("REFSB", 0, 1), 16),
    ("LPDDR5_6400", "FAW", REFSB_AND_ACTS, ("ACT", 0, 2), 16),
    ("HBM1_1000", "FAW", [("ACT", 3 * i, i, 0) for i in range(4)], ("REFSB", 0, 1), 15 + 1),
    ("HBM3_6400", "FAW", [("ACT", 8 * i, i, 0) for i in range(4)], ("REFSB", 0, 1), 48 + 2),
    ("HBM3_6400", "FAW", REFSB_AND_ACTS, ("ACT", 0, 2), 48 - 2),
    # A write recovers before its row is closed, by a later RDA too: CWL, BL, WR, then RP.
    ("DDR5_4800AN", "CWL + BL + WR + RP", WR_THEN_RDA, ("ACT", 0, 0), 32 + 8 + 72 + 34),
    ("DDR3_1600K", "CWL + BL + WR + RP", WR_THEN_RDA, ("ACT", 0, 0), 8 + 4 + 12 + 11),
    ("HBM1_1000", "CWL + BL + WR + RP", WR_THEN_RDA, ("REFSB", 0, 0), 4 + 1 + 8 + 7),
    ("HBM2_2000", "CWL + BL + WR + RP", WR_THEN_RDA, ("REFSB", 0, 0), 5 + 2 + 16 + 14),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule", "before", "after", "clocks"), CASES)
def test_a_command_is_refused_a_clock_early_and_accepted_on_time(name, rule, before, after, clocks):
    dram = preset(name)
    earlier = [Command(FIRST + at, kind, 0, group, bank, 7) for kind, at, group, bank in before]
    for clock, refused in ((FIRST + clocks - 1, True), (FIRST + clocks, False)):
        last = Command(clock, after[0], 0, *after[1:], 7)
        reasons = [each.reason for each in check([*earlier, last], dram) if each.place == len(earlier)]
        assert any(reason.startswith(f"{rule}: ") for reason in reasons) is refused, reasons


def test_a_ddr5_refresh_counts_for_no_window_of_acts():
    dram = preset("DDR5_4800AN")
    log = [
        Command(FIRST, "REFSB", 0, -1, 3),
        *(Command(FIRST + 100 + 12 * i, "ACT", 0, i, 0, 7) for i in range(4)),
    ]
    assert check(log, dram) == []


@pytest.mark.parametrize("name", ["HBM1_1000", "HBM2_2000", "HBM3_6400", "LPDDR5_6400"])
def test_postponed_refreshes_keep_their_distances_in_a_log(name):
    """Refreshes that fall due while rows are held open follow as the rules allow, and no closer."""
    dram = preset(name)
    t = dram.timing
    closing = max(t.ras, t.cwl + t.bl + t.wr) + t.ppd + t.rp
    dram = dram.with_timing(refi_sb=max(t.refsb_refsb, closing) + 1)
    memory = Memory(dram, layout="bg_first", refresh_mode="same_bank")
    rng = np.random.default_rng(3)
    bursts = rng.integers(0, memory.address_layout.bursts, 3000)
    log = list(memory.commands(Requests(bursts, rng.random(3000) < 0.4)).log)
    assert check(log, dram) == []
    refreshed = [command.clock for command in log if command.name == "REFSB"]
    assert len(refreshed) > 20
    assert min(np.diff(refreshed)) >= t.refsb_refsb


def test_an_all_bank_refresh_of_lpddr5_waits_for_the_slower_precharge():
    dram = preset("LPDDR5_6400").with_timing(refi=600)
    memory = Memory(dram)
    rng = np.random.default_rng(4)
    log = list(
        memory.commands(Requests(rng.integers(0, memory.address_layout.bursts, 500), np.zeros(500, bool))).log
    )
    pairs = [(a, b) for a, b in pairwise(log) if (a.name, b.name) == ("PREA", "REF")]
    assert {b.clock - a.clock for a, b in pairs} == {17}
