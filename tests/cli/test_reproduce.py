"""``onehop reproduce``."""

from pathlib import Path

import pytest

from onehop.reproduce import WORKS
from tests.cli.running import onehop, written


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKS, "isplib", "tests.reproduce.fake_work")


@pytest.mark.parametrize("quick", [True, False])
def test_rows_are_printed_and_written(tmp_path: Path, quick: bool) -> None:
    file, folder = tmp_path / "new" / "out.json", tmp_path / "pictures"
    found, output = written(file, "reproduce isplib", "--quick" if quick else "", "--plot", folder)
    for text in ("Somebody, somewhere.", "speed [best]", "2 to 4", "0.75", "Needs a GPU.", "isplib_bars.png"):
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
        "high": 4.0,
        "unit": "x",
        "note": "On twins.",
        "headline": True,
        "verdict": "agrees",
        "low_by": "a slow clock",
        "high_by": "a fast clock",
        "decides": "",
        "unknowns": [],
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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("isplib --fit", "WORK: isplib has no simulator, so no configuration can be fitted"),
        ("io-aware --fit", "WORK: io-aware has no simulator"),
        ("all --fit", "WORK: all has no simulator"),
        ("grande --gpu nowhere.json", "--gpu: expected io-aware without --fit and --quick"),
        ("io-aware --quick --gpu nowhere.json", "--gpu: expected io-aware without"),
        ("io-aware --gpu nowhere.json", "nowhere.json"),
    ],
)
def test_what_cannot_be_had_ends_with_a_sentence_and_two(options: str, sentence: str) -> None:
    result = onehop("reproduce", options)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_a_fit_is_shown_written_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKS, "grande", "tests.reproduce.fake_fit")
    found, output = written(tmp_path / "fit.json", "reproduce grande --quick --fit --plot", tmp_path)
    assert "One configuration meets 1 published figures within 25 %." in " ".join(output.split())
    for text in ("The nearest configuration", "Its figures", "Each unknown moved alone", "grande_fit.png"):
        assert text in output
    assert found["command"] == "reproduce grande --quick --fit"
    assert (found["work"], found["quick"], found["largest_error"]) == ("grande", True, 0.25)
    assert (tmp_path / "grande_fit.png").read_bytes().startswith(b"\x89PNG")
