"""Every shipped kind of device beside Ramulator 2.1, on the same requests."""

import csv
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.machines import dram_reference
from onehop.machines.dram import PRESETS, Access, Memory, preset

TABLE = Path(__file__).parents[3] / "benchmarks" / "machines" / "dram_devices.csv"
KINDS = ("DDR3", "DDR4", "DDR5", "LPDDR5", "HBM1", "HBM2", "HBM3")
CASES = {row["name"]: row for row in csv.DictReader(TABLE.read_text().splitlines())}


@pytest.mark.parametrize("row", CASES.values(), ids=CASES)
def test_within_a_percent_with_as_many_rows_opened(row):
    memory = Memory(
        preset(row["device"]), refresh_mode=row["refresh_mode"], close_after=int(row["close_after"])
    )
    share = float(row["write_share"])
    access = Access(row["pattern"], int(row["run_bytes"]), write_share=share)
    run = memory.commands(memory.requests(access, 50_000, seed=1), log=False)
    expected = int(row["cycles"]) / int(row["served"])
    assert run.accepted.cycles / run.accepted.served == pytest.approx(expected, rel=0.01)
    for name in ("row_hits", "row_misses", "row_conflicts"):
        # Requests that are still in the queue at the end are not in the table.
        assert getattr(run.counts, name) == pytest.approx(int(row[name]), abs=0.006 * 50_000), name


def test_the_table_has_every_kind_of_device_policy_and_mix():
    kinds = {row["device"].split("_")[0] for row in CASES.values()}
    assert kinds == {name.split("_")[0] for name in PRESETS} == set(KINDS)
    for kind in kinds:
        of_kind = [row for row in CASES.values() if row["device"].startswith(kind + "_")]
        assert {row["close_after"] for row in of_kind} >= {"0", "1", "4"}
        assert any(0 < float(row["write_share"]) < 1 for row in of_kind)
    assert {row["device"] for row in CASES.values() if row["refresh_mode"] == "same_bank"} == {
        "LPDDR5_6400",
        "HBM1_1000",
        "HBM2_2000",
        "HBM3_6400",
    }


def test_the_script_that_writes_the_table_has_its_very_cases():
    columns = [entry.name for entry in fields(dram_reference.Case)]
    lines = [dram_reference.line(case, {}) for case in dram_reference.cases()]
    assert lines == [{name: row[name] for name in columns} for row in CASES.values()]


class Parts:
    """Stands in for Ramulator: every part is the dictionary that it was made from."""

    def __init__(self, stats):
        self.stats, self.made = stats, []

    def __getattr__(self, name):
        return self if name.islower() else lambda **values: self.made.append((name, values)) or values

    def Simulation(self, frontend, system):
        self.made.append(("trace", Path(frontend["path"]).read_text().splitlines()))
        return type(
            "Run", (), {"run": lambda _: None, "stats": {"memory_system": {"controller": self.stats}}}
        )()


def test_ramulator_gets_the_case_and_its_counts_are_taken():
    stats = {
        "num_read_reqs_served": 7,
        "num_write_reqs_served": 4,
        "cycles": 9,
        "row_hits": 1,
        "row_misses": 2,
    }
    parts = Parts(stats | {"row_conflicts": 3})
    case = next(c for c in dram_reference.cases() if c.name == "HBM3_6400_samebank_mixed30_rand256")
    found = dram_reference.measure(parts, case)
    assert found == {"cycles": 9, "served": 11, "row_hits": 1, "row_misses": 2, "row_conflicts": 3}
    made = dict(parts.made)
    assert made["HBM3"] == {"org_preset": "HBM3_4Gb", "timing_preset": "HBM3_6400Mbps", "pseudochannel": 1}
    assert {"HBM34", "HBM34PerBankRefresh", "Open", "RoBaRaCoCh"} <= set(made)
    assert len(made["trace"]) == 50_000
    assert {line.split()[0] for line in made["trace"]} == {"LD", "ST"}
    closed = Parts(parts.stats)
    case = next(c for c in dram_reference.cases() if c.name == "DDR4_2400_closed4_mixed30_rand256")
    dram_reference.measure(closed, case)
    made = dict(closed.made)
    assert (made["ClosedCAP"], made["DDR4"]["nRFC"], "AllBank" in made) == ({"cap": 4}, 420, True)
