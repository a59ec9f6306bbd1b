"""Energies of devices against the currents that they come from, and standby against open rows.

JEDEC defines each current by a loop of commands, so a rank that runs the loop has to draw it. The formulas
that follow are those of Micron's TN-40-07 and of DRAMPower 5 (core_calculation_DDR4.cpp and its like).
"""

import pytest

from onehop.machines.dram import Access, Memory, preset
from onehop.machines.dram.report import CommandCounts, energy_by_command

# By device: devices of a rank, and by supply: V; mA of IDD0, 2N, 3N, 4R, 4W, 5B; None where it is not known.
SUPPLIES = {
    "DDR4_2400": (8, [(1.2, 48, 34, 43, 135, 123, 250)]),
    "DDR3_1600K": (8, [(1.35, 55, 32, 38, 157, 125, 235)]),
    "HBM1_1000": (1, [(1.2, 65, 40, 55, 360, 440, 250)]),
    "DDR5_4800AN": (4, [(1.1, 122, 92, 142, 530, 479, 277)]),
    "LPDDR5_6400": (
        1,
        [
            # A sheet of 7500 Mb/s: bursts add the same energy a bit at 6400.
            (1.05, 53, 32.5, 40, 40 + 350 * 6400 / 7500, 40 + 225 * 6400 / 7500, 205),
            (1.8, 3.8, 1.5, 2.8, 2.8 + 15.2 * 6400 / 7500, 2.8 + 13.7 * 6400 / 7500, None),
        ],
    ),
}


def drawn_mw(dram, cycles, **counts):
    """Power of a rank that sends so many commands in so many clocks."""
    none = dict.fromkeys(
        ("reads", "writes", "row_hits", "row_misses", "row_conflicts", "activations", "refreshes"), 0
    )
    energy = energy_by_command(dram, 1, CommandCounts(cycles=cycles, **{**none, **counts}))
    return sum(energy.values()) / (cycles * dram.timing.clock_ps) * 1e6


def measured_mw(name, index):
    """Power of the rank in the loop of a current."""
    devices, supplies = SUPPLIES[name]
    return devices * sum(volts * (of[2] if of[index] is None else of[index]) for volts, *of in supplies)


@pytest.mark.parametrize("name", SUPPLIES)
def test_each_loop_draws_its_current(name):
    dram = preset(name)
    timing, banks = dram.timing, dram.organisation.banks
    all_open = {"open_clocks": banks * timing.bl}
    loops = {
        3: drawn_mw(dram, timing.bl, reads=1, **all_open),
        4: drawn_mw(dram, timing.bl, writes=1, **all_open),
        5: drawn_mw(dram, timing.rfc, refreshes=1),
        2: drawn_mw(dram, 1000, open_clocks=1000 * banks),
        0: drawn_mw(dram, timing.rc, activations=1, open_clocks=timing.ras),
    }
    for index, found in loops.items():
        wanted = measured_mw(name, index)
        if index == 0 and not dram.energy.closed_mw:
            # Standby with closed rows is as with open ones, for RP of every RC.
            wanted += (measured_mw(name, 2) - measured_mw(name, 1)) * timing.rp / timing.rc
        assert found == pytest.approx(wanted, rel=0.005), index


def test_closed_rows_draw_less_where_that_is_known():
    assert drawn_mw(preset("DDR5_4800AN"), 1000) == pytest.approx(measured_mw("DDR5_4800AN", 1), rel=0.001)
    assert drawn_mw(preset("DDR4_2400"), 1000) == pytest.approx(measured_mw("DDR4_2400", 2), rel=0.001)


@pytest.mark.parametrize(
    ("ranks", "close_after", "mode"),
    [(1, 0, "all_bank"), (2, 0, "all_bank"), (1, 1, "same_bank"), (2, 3, "all_bank")],
)
def test_standby_is_of_the_rows_that_the_commands_leave_open(ranks, close_after, mode):
    dram = preset("DDR5_4800AN").with_timing(refi=3001, refi_sb=1001)
    memory = Memory(dram, ranks=ranks, close_after=close_after, refresh_mode=mode)
    run = memory.commands(memory.requests(Access("random", 128, write_share=0.3), 600))
    opened, total = {}, 0

    def close(bank, clock):
        nonlocal total
        total += clock - opened.pop(bank)

    timing = dram.timing
    longer = timing.command_clocks - 1
    for command in run.log:
        bank = command[2:5]
        if command.name == "ACT":
            opened[bank] = command.clock
        elif command.name == "PRE":
            close(bank, command.clock)
        elif command.name == "PREA":
            for each in [each for each in opened if each[0] == command.rank]:
                close(each, command.clock)
        elif command.name in ("RDA", "WRA"):
            after = timing.rtp if command.name == "RDA" else timing.cwl + timing.bl + timing.wr
            close(bank, max(command.clock + longer + after, opened[bank] + longer + timing.ras))
    for bank in list(opened):
        close(bank, run.counts.cycles)
    assert run.counts.open_clocks == total > 0

    energy, banks = dram.energy, dram.organisation.banks
    refreshed = run.counts.refreshes * (banks * timing.rfc if mode == "all_bank" else 8 * timing.rfc_sb)
    power = ranks * energy.closed_mw * run.counts.cycles
    power += (energy.standby_mw - energy.closed_mw) * (total + refreshed) / banks
    report = memory.serve(memory.requests(Access("random", 128, write_share=0.3), 600))
    assert report.energy["standby"] == pytest.approx(power * timing.clock_ps * 1e-6)


def test_the_curve_knows_open_rows_too():
    memory = Memory(preset("DDR5_4800AN"))
    found = [
        memory.run(Access("random", 64), 20_000, level).energy["standby"] for level in ("command", "curve")
    ]
    assert found[0] == pytest.approx(found[1], rel=0.01)
    assert found[0] < 0.9 * memory.run(Access("random", 64), 20_000).time_ns * 0.625
