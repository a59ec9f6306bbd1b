"""The pages of published figures say what the result files say."""

import json
from pathlib import Path

import pytest

from benchmarks import render_reproductions as script

ROOT = Path(__file__).resolve().parents[2]
FOUND = {
    "source": "Somebody.",
    "quick": True,
    "charts": ["bars"],
    "stamp": {
        "date": "2026-01-02T03",
        "machine": {"processor": "P"},
        "threads": 2,
        "versions": {"torch": "2"},
    },
    "rows": [
        {
            "figure": figure,
            "paper": 4.0,
            "ours": None,
            "ratio": None,
            "low": None,
            "high": None,
            "unit": "x",
            "note": "Needs a GPU.",
            "headline": headline,
            "verdict": "open",
        }
        for figure, headline in (("speed", True), ("size", False))
    ],
}


def test_the_pages_are_what_the_results_say() -> None:
    for page, text in script.rendered(ROOT).items():
        assert (ROOT / page).read_text() == text, page


def test_at_most_forty_figures_are_in_the_table() -> None:
    assert script.summary(ROOT).count("\n") <= 41


def test_works_that_were_computed_and_that_were_not(tmp_path: Path) -> None:
    file = tmp_path / script.RESULTS / "grande.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(FOUND))
    with pytest.raises(SystemExit, match=r"grande_bars\.png: missing"):
        script.section(tmp_path, "grande")
    picture = tmp_path / script.PICTURES / "grande_bars.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"")
    text = script.section(tmp_path, "grande")
    assert "2026-01-02 on parts of the twins" in text
    assert "| size | 4 |  |  |  | x | Needs a GPU. |" in text
    assert "| speed |" not in text
    assert "(../images/reproduce/grande_bars.png)" in text
    assert "All 2 rows" in text
    assert script.section(tmp_path, "pygim") == "Not computed yet: `make figures WORKS=pygim`."
    (line,) = script.summary(tmp_path).splitlines()[2:]
    assert "| GraNDe |" in script.works(tmp_path)
    assert "[open: 1](docs/reproduce/grande.md) |" in script.works(tmp_path)
    assert "[not computed yet](docs/reproduce/pygim.md) |" in script.works(tmp_path)
    assert line == "| [grande](reproduce/grande.md) | speed | 4 |  |  | x | open | Needs a GPU. |"


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / script.PAGE
    page.parent.mkdir()
    page.write_text("Nothing.")
    with pytest.raises(SystemExit, match="expected the markers"):
        script.rendered(tmp_path)
