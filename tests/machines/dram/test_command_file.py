"""Files of commands: every command is there, where and when the device could take it, in others' words."""

from collections import Counter
from copy import copy

import pytest

from onehop.errors import ArgumentError, StorageError
from onehop.machines.dram import Access, Memory, check_commands, command_file, preset, write_commands
from tests.machines.dram.command_lines import lines_of, wrong

SOON = {"refi": 901}
# A device with refreshes soon, the controller, and the file's ending.
CASES = {
    "DDR4": ("DDR4_2400", SOON, {}, ".csv"),
    "DDR4, two ranks": ("DDR4_2400", {"refi": 1201}, {"ranks": 2}, ".trace"),
    "DDR5": ("DDR5_4800AN", {"refi": 2001}, {"layout": "bg_first"}, ".trace"),
    "DDR5, same bank": ("DDR5_4800AN", {"refi_sb": 901}, {"refresh_mode": "same_bank", "ranks": 2}, ".csv"),
    "DDR5, closed": ("DDR5_4800AN", {"refi": 2001}, {"close_after": 1, "layout": "mop4"}, ".csv"),
    "LPDDR5": ("LPDDR5_6400", SOON, {}, ".csv"),
    "LPDDR5, one bank": ("LPDDR5_6400", {}, {"refresh_mode": "same_bank"}, ".csv"),
    "LPDDR5, recorded": ("LPDDR5_6400", {}, {"refresh_mode": "same_bank"}, ".trace"),
    "HBM2": ("HBM2_2000", SOON, {}, ".trace"),
    "HBM1, one bank": ("HBM1_1000", {}, {"refresh_mode": "same_bank"}, ".trace"),
    "DDR3": ("DDR3_1600K", SOON, {"ranks": 2}, ".trace"),
}


@pytest.fixture(scope="module", params=CASES)
def written(request, tmp_path_factory):
    """Memory, requests, run, what the writer said, and the file."""
    name, clocks, controller, ending = CASES[request.param]
    memory = Memory(preset(name).with_timing(**clocks), **controller)
    requests = memory.requests(Access("random", 128, write_share=0.3), 500, seed=3)
    run = memory.commands(requests)
    path = tmp_path_factory.mktemp("commands") / f"all{ending}"
    return memory, requests, run, write_commands(path, run, memory), path


def test_a_device_could_take_every_command(written):
    memory, _, _, _, path = written
    lines, _ = lines_of(path, memory.dram)
    assert wrong(lines, memory.dram) is None


def test_there_are_as_many_as_the_report_counts(written):
    memory, requests, _, told, path = written
    lines, end = lines_of(path, memory.dram)
    found, report = Counter(line.name for line in lines), memory.serve(requests)
    assert (found["RD"] + found["WR"], found["ACT"]) == (report.served, report.activations)
    assert sum(found[name] for name in ("REFA", "REFB", "REFSB")) == report.refreshes > 0
    assert end == (report.cycles if path.suffix == ".csv" else None)
    assert sum(told.values()) == len(lines)
    assert found["ACT2"] == (found["ACT"] if memory.dram.timing.aad and path.suffix == ".trace" else 0)


def test_bursts_are_those_of_the_requests(written):
    memory, requests, run, _, path = written
    assert run.counts.forwarded == run.counts.coalesced == 0
    places = memory.address_layout.map(requests.bursts).T.tolist()
    wanted = Counter(
        ("WR" if write else "RD", rank, group * memory.dram.organisation.banks_per_group + bank, row, column)
        for write, (rank, group, bank, row, column) in zip(requests.writes.tolist(), places, strict=True)
    )
    lines, _ = lines_of(path, memory.dram)
    accesses = [line for line in lines if line.name in ("RD", "WR")]
    assert Counter((line.name, line.rank, line.bank, line.row, line.column) for line in accesses) == wanted


def swapped(lines, first, second):
    """The commands with two of them in each other's place; the clocks stay."""
    moved = [copy(line) for line in lines]
    moved[first], moved[second] = copy(lines[second]), copy(lines[first])
    moved[first].clock, moved[second].clock = lines[first].clock, lines[second].clock
    return moved


@pytest.mark.parametrize(
    ("before", "after"), [("ACT", "RD"), ("RD", "PRE"), ("PRE", "ACT"), ("PREA", "REFA")]
)
def test_the_check_notices_another_order(before, after, tmp_path):
    memory, path = Memory(preset("DDR4_2400").with_timing(**SOON)), tmp_path / "all.csv"
    write_commands(path, memory.commands(memory.requests(Access("random", 64), 400)), memory)
    lines, _ = lines_of(path, memory.dram)
    assert wrong(lines, memory.dram) is None
    last = {}
    pairs = []
    for place, line in enumerate(lines):
        bank = line.rank if before == "PREA" else (line.rank, line.bank)
        if bank in last and (lines[last[bank]].name, line.name) == (before, after):
            pairs.append((last[bank], place))
        last[bank] = place
    assert pairs
    assert all(wrong(swapped(lines, *pair), memory.dram) for pair in pairs[:20])


TIMINGS = (
    "rcd",
    "rp",
    "ras",
    "rc",
    "ccd_s",
    "ccd_l",
    "ccd_l_wr",
    "rrd_s",
    "rrd_l",
    "faw",
    "rtp",
    "wr",
    "rfc",
)


@pytest.mark.parametrize("timing", TIMINGS)
def test_the_check_notices_a_clock_less_than_a_timing(timing, tmp_path):
    # The simulator is as fast as it may be, so a device that needs a clock more could not take its commands.
    dram, path = preset("DDR4_2400").with_timing(**SOON), tmp_path / "all.csv"
    slower = dram.with_timing(**{timing: getattr(dram.timing, timing) + 1})
    found = []
    for layout, run_bytes in (("row_first", 256), ("bg_first", 4096)):
        memory = Memory(dram, layout=layout)
        requests = memory.requests(Access("random", run_bytes, write_share=0.5), 300)
        write_commands(path, memory.commands(requests), memory)
        lines, _ = lines_of(path, dram)
        assert wrong(lines, dram) is None
        found.append(wrong(lines, slower))
    assert any(found)


def test_the_check_notices_two_commands_in_a_clock(tmp_path):
    memory, path = Memory(preset("DDR4_2400")), tmp_path / "all.csv"
    write_commands(path, memory.commands(memory.requests(Access("random", 64), 50)), memory)
    lines, _ = lines_of(path, memory.dram)
    lines[1].clock = lines[0].clock
    assert "the command bus is busy" in wrong(lines, memory.dram)


def test_lines_look_as_the_others_have_them(tmp_path):
    memory = Memory(preset("DDR5_4800AN"), layout="bg_first")
    run = memory.commands(memory.requests(Access("sequential"), 9))
    for ending, first, last in (
        (".csv", "1,ACT,0,0,0,0,0", f"{run.counts.cycles},END,0,0,0,0,0"),
        (".trace", "1,ACT,0,0,0,0,0,-1,-1,-1", None),
    ):
        path = tmp_path / f"all{ending}"
        write_commands(path, run, memory)
        lines = path.read_text().splitlines()
        assert lines[ending == ".trace"] == first
        assert last in (None, lines[-1])
        # The ninth burst is the second one of the first bank's row: the 17th transfer.
        ninth = {".csv": "RD,0,0,0,0,16,", ".trace": "RD,0,0,0,0,0,1,0,-1"}[ending]
        assert sum(line.endswith(ninth) for line in lines) == 1


def test_the_share_that_is_written_grows_to_one(tmp_path, monkeypatch):
    monkeypatch.setattr(command_file, "_CHUNK", 7)
    memory = Memory(preset("DDR4_2400"))
    run = memory.commands(memory.requests(Access("random", 64), 20))
    told = []
    lines = sum(write_commands(tmp_path / "all.csv", run, memory, told.append).values())
    assert told == pytest.approx([*(7 * (i + 1) / lines for i in range((lines - 1) // 7)), 1.0])


@pytest.mark.parametrize(
    ("name", "controller", "requests", "path", "sentence"),
    [
        ("DDR4_2400", {}, 1, "all.txt", r"ends in \.csv \(DRAMPower\) or \.trace \(Ramul.*, got all"),
        ("HBM2_2000", {}, 1, "all.csv", "DRAMPower knows devices with one command bus .* HBM2_2000 has two"),
        ("DDR5_4800AN", {"refresh_mode": "same_bank"}, 1, "all.trace", "Ramulator 2.1 has no refresh"),
        ("DDR4_2400", {}, 20_000_000, "all.csv", "at most 10,000,000 .*, got 20,000,000, .* 1.7 GB"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_the_run(name, controller, requests, path, sentence):
    with pytest.raises(ArgumentError, match=f"commands: .*{sentence}"):
        check_commands(path, Memory(preset(name), **controller), requests)


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path):
    memory = Memory(preset("DDR4_2400"))
    run = memory.commands(memory.requests(Access(), 2))
    (tmp_path / "all.csv").mkdir()
    with pytest.raises(StorageError, match=r"commands: cannot write .*all\.csv"):
        write_commands(tmp_path / "all.csv", run, memory)


def test_a_run_without_a_log_is_refused(tmp_path):
    memory = Memory(preset("DDR4_2400"))
    with pytest.raises(ArgumentError, match="run: expected a run with its log"):
        write_commands(tmp_path / "all.csv", memory.commands(memory.requests(Access(), 2), log=False), memory)
