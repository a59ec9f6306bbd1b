"""``onehop reproduce``."""

from pathlib import Path

import pytest

from onehop.reproduce import WORKS
from tests.cli.running import written


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKS, "isplib", "tests.reproduce.fake_work")


@pytest.mark.parametrize("quick", [True, False])
def test_rows_are_printed_and_written(tmp_path: Path, quick: bool) -> None:
    file, folder = tmp_path / "new" / "out.json", tmp_path / "pictures"
    found, output = written(file, "reproduce isplib", "--quick" if quick else "", "--plot", folder)
    for text in ("Somebody, somewhere.", "speed [best]", "2 to 5", "0.75", "Needs a GPU.", "isplib_bars.png"):
        assert text in output
    assert found["command"] == f"reproduce isplib{' --quick' if quick else ''}"
    assert (found["work"], found["quick"], found["charts"]) == ("isplib", quick, ["bars"])
    assert found["stamp"]["versions"]["torch"]
    first, second = found["rows"]
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
    found, output = written(tmp_path / "all.json", "reproduce all --quick")
    assert output.count("speed [best]") == output.count("agrees") == len(WORKS)
    assert "Needs a GPU." not in output
    assert [len(each["rows"]) for each in found["works"]] == [2] * len(WORKS)
