"""Every case that Ramulator 2.1 was run on, beside the command level and the limits, with its rows."""

import csv
from pathlib import Path

import pytest

from onehop.machines.dram import Access, Memory, preset

TABLE = Path(__file__).parents[3] / "benchmarks" / "machines" / "dram_cases.csv"
CASES = {row["name"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}
# Remains of runs stay in the queue while CCD_L_WR, 48 clocks, passes: it then holds more runs than the
# formula knows of.
NOT_IN_FORMULA = {"wr_rand1k_robaraco", "wr_rand1k_mop4"}
# Without chance no tolerance is needed: these end at the clock at which Ramulator ends.
EXACT = {"seq_row_first", "seq_mop4", "seq_bg_first", "wr_seq_mop4"}


@pytest.fixture(params=CASES)
def case(request):
    """Name, memory, traffic, and the line of the table."""
    row = CASES[request.param]
    clocks = dict(pair.split("=") for pair in row["timing"].split(";") if pair)
    dram = preset("DDR5_4800AN").with_timing(**{name: int(value) for name, value in clocks.items()})
    memory = Memory(
        dram, int(row["ranks"]), row["layout"], int(row["queue"]), row["refresh"] == "1", row["scheduler"]
    )
    return request.param, memory, Access(row["pattern"], int(row["run_bytes"]), row["op"]), row


def test_there_are_all_cases():
    assert len(CASES) == 43


def test_the_command_level_is_within_a_percent_and_opens_as_many_rows(case):
    name, memory, access, row = case
    run = memory.commands(memory.requests(access, 200_000, seed=1), log=False)
    expected = int(row["cycles"]) / int(row["served"])
    assert run.accepted.cycles / run.accepted.served == pytest.approx(expected, rel=0.01)
    if name in EXACT:
        assert (run.accepted.cycles, run.accepted.served) == (int(row["cycles"]), int(row["served"]))
    for name in ("row_hits", "row_misses", "row_conflicts"):
        # Requests that are still in the queue at the end are not in the table.
        assert getattr(run.counts, name) == pytest.approx(int(row[name]), abs=0.006 * 200_000), name


def test_the_strictest_limit_is_within_three_percent_where_the_formula_applies(case):
    name, memory, access, row = case
    error = memory.limits(access).cycles * int(row["served"]) / int(row["cycles"]) - 1
    assert (abs(error) <= 0.03) == (name not in NOT_IN_FORMULA)


def test_the_curves_rows_are_those_that_were_opened(case):
    _, memory, access, row = case
    report = memory.run(access, 200_000, "curve")
    opened = int(row["row_misses"]) + int(row["row_conflicts"])
    assert report.activations == pytest.approx(opened, rel=0.03)
    assert report.energy["activate"] == pytest.approx(report.activations * memory.dram.energy.activate_nj)
