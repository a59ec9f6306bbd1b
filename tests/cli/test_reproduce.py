"""``onehop reproduce``."""

import json
from pathlib import Path

import pytest

from onehop.reproduce import WORKS
from tests.cli.running import onehop


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKS, "isplib", "tests.reproduce.fake_work")


@pytest.mark.parametrize("quick", [True, False])
def test_rows_are_printed_and_written(tmp_path: Path, quick: bool) -> None:
    file, folder = tmp_path / "new" / "out.json", tmp_path / "pictures"
    flag = ["--quick"] if quick else []
    result = onehop("reproduce", "isplib", *flag, "--json", file, "--plot", folder)
    assert result.exit_code == 0, result.output
    for text in ("Somebody, somewhere.", "speed [best]", "2 to 5", "0.75", "Needs a GPU.", "isplib_bars.png"):
        assert text in result.output
    written = json.loads(file.read_text())
    assert written["command"] == f"reproduce isplib{' --quick' if quick else ''}"
    assert (written["work"], written["quick"], written["charts"]) == ("isplib", quick, ["bars"])
    assert written["stamp"]["versions"]["torch"]
    first, second = written["rows"]
    assert first == {
        "figure": "speed [best]",
        "paper": 4.0,
        "ours": 3.0,
        "ratio": 0.75,
        "low": 2.0,
        "high": 5.0,
        "unit": "x",
        "note": "On twins.",
        "headline": True,
        "verdict": "agrees",
    }
    assert [name for name, value in second.items() if value is None] == ["ours", "ratio", "low", "high"]
    assert (second["headline"], second["verdict"]) == (False, "open")
    assert (folder / "isplib_bars.png").read_bytes().startswith(b"\x89PNG")


def test_of_all_works_the_headlines_are_printed_with_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in WORKS:
        monkeypatch.setitem(WORKS, name, "tests.reproduce.fake_work")
    file = tmp_path / "all.json"
    result = onehop("reproduce", "all", "--quick", "--json", file)
    assert result.exit_code == 0, result.output
    assert result.output.count("speed [best]") == result.output.count("agrees") == len(WORKS)
    assert "Needs a GPU." not in result.output
    written = json.loads(file.read_text())
    assert [len(each["rows"]) for each in written["works"]] == [2] * len(WORKS)


def test_unknown_works_are_one_sentence() -> None:
    result = onehop("reproduce", "pigym")
    assert result.exit_code == 2
    assert "work: expected one of pygim, grande, io-aware, isplib, or all, got 'pigym'" in result.output


def test_pictures_need_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = onehop("reproduce", "isplib", "--plot", file)
    assert result.exit_code == 2
    assert "plot: expected a folder for the pictures" in result.output
