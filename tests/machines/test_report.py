"""Reports and ledgers, which all machines share."""

import json
from pathlib import Path

import pytest

from onehop.machines import Ledger, Report
from onehop.machines.common.report import plot_phases
from tests.pictures import drawn, faults


def report(scale: float = 1.0) -> Report:
    return Report(
        machine="toy",
        phases_ns={"send": 2e6 * scale, "kernel": 3e6 * scale, "idle": 0.0},
        bytes={"sent": 4096},
        energy_nj={"cores": 5e6 * scale},
        figures={"utilisation": 0.25},
    )


def test_total_is_the_sum_of_the_phases() -> None:
    assert report().total_ms == 5.0


def test_json_round_trip(tmp_path: Path) -> None:
    report().to_json(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert read == report().as_dict()
    assert read["phases_ms"] == {"send": 2.0, "kernel": 3.0, "idle": 0.0}
    assert read["energy_mj"] == 5.0
    assert read["utilisation"] == 0.25


def test_table_names_phases_bytes_energy_and_figures() -> None:
    text = str(report())
    for part in ("send", "60.0 %", "4 KiB", "5 mJ", "utilisation", "0.25"):
        assert part in text
    assert "idle" not in text


def test_keys_are_shown_as_words_and_stay_keys_in_json() -> None:
    named = Report(
        machine="toy",
        phases_ns={"send": 1e6},
        bytes={"tile_list_read": 64},
        energy_nj={"dram_read": 1e6},
        figures={"bound_ms": 2.0, "row_hits": 3},
        labels={"bound_ms": "least time, ms"},
    )
    text = str(named)
    for part in ("tile list read", "dram read", "least time, ms", "row hits"):
        assert part in text
    assert "_" not in text
    assert {"bound_ms", "row_hits"} <= set(named.as_dict())
    assert "labels" not in named.as_dict()


def test_times_have_the_largest_unit_that_they_reach() -> None:
    phases = {"a": 0.5, "b": 1e3, "c": 1e6, "d": 1e9, "e": 999.0}
    lines = str(Report(machine="toy", phases_ns=phases, bytes={}, energy_nj={})).splitlines()
    found = {
        words[0]: " ".join(words[1:3]) for line in lines if (words := line.split()) and words[0] in phases
    }
    assert found == {"a": "0.5 ns", "b": "1 us", "c": "1 ms", "d": "1 s", "e": "999 ns"}


def test_plot_is_a_picture(tmp_path: Path) -> None:
    with drawn() as figures:
        report().plot(tmp_path / "phases.png")
    assert faults(figures[0]) == []
    assert figures[0].get_suptitle() == "Time of each phase\nsimulated: toy"
    # What takes no time is no part of the legend.
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["send", "kernel"]
    assert (tmp_path / "phases.png").read_bytes().startswith(b"\x89PNG")


def test_bars_have_their_phases_in_the_order_in_which_they_happen(tmp_path: Path) -> None:
    bars = {
        "one": {"send": 2e6, "broadcast": 0.0, "kernel": 3e6, "never": 0.0},
        "two": {"send": 0.0, "broadcast": 9e6, "kernel": 1e6, "never": 0.0},
    }
    with drawn() as figures:
        plot_phases(bars, "Phases", "simulated: machine", tmp_path / "phases.png")
    (figure,) = figures
    assert faults(figure) == []
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["send", "broadcast", "kernel"]
    (axes,) = figure.axes
    assert axes.get_xlim()[1] > 10  # the longest bar ends before the frame does


def test_ledger_adds_up_by_layer_and_by_epoch() -> None:
    ledger = Ledger()
    for scale in (1.0, 2.0):
        for layer in ("GCNConv 1", "GCNConv 2"):
            ledger.record(layer, False, report(scale))
        ledger.record("GCNConv 2", True, report(scale))
    assert ledger.total_ms == pytest.approx(45.0)
    assert ledger.by_layer()["GCNConv 1"] == pytest.approx({"send": 6.0, "kernel": 9.0, "idle": 0.0})
    assert ledger.by_layer()["GCNConv 2"]["kernel (backward)"] == pytest.approx(9.0)
    first, second = ledger.by_epoch()
    assert sum(first.values()) == pytest.approx(15.0)
    assert sum(second.values()) == pytest.approx(30.0)
    assert "GCNConv 2" in str(ledger)


def test_ledger_forgets() -> None:
    ledger = Ledger()
    ledger.record("a", False, report())
    ledger.clear()
    assert ledger.as_dict()["runs"] == 0
