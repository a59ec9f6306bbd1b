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
            "low_by": "",
            "high_by": "",
            "decides": "",
            "unknowns": [],
        }
        for figure, headline in (("speed", True), ("size", False))
    ],
}


def test_the_pages_are_what_the_results_say() -> None:
    for page, text in script.rendered(ROOT).items():
        assert (ROOT / page).read_text() == text, page


def test_at_most_fifty_figures_are_in_the_table() -> None:
    assert script.summary(ROOT).count("\n") <= 51


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
    assert line == "| [grande](reproduce/grande.md) | speed | 4 |  |  | x | open |  | Needs a GPU. |"


def test_rows_of_a_gpu_take_the_place_of_open_ones(tmp_path: Path) -> None:
    folder = tmp_path / script.RESULTS
    folder.mkdir(parents=True)
    (folder / "io-aware.json").write_text(json.dumps(FOUND))
    measured = {**FOUND["rows"][0], "ours": 3.0, "verdict": "differs"}
    still_open = {**FOUND["rows"][1], "note": "Still open."}
    (folder / "io-aware-gpu.json").write_text(json.dumps({"rows": [measured, still_open]}))
    first, second = script.found(tmp_path, "io-aware")["rows"]
    assert first == measured
    assert second == FOUND["rows"][1]
    assert "[differs: 1](docs/reproduce/io-aware.md) |" in script.works(tmp_path)


def test_verdicts_of_earlier_versions_are_not_shown(tmp_path: Path) -> None:
    folder = tmp_path / script.RESULTS
    folder.mkdir(parents=True)
    rows = [{**row, "ours": 4.0, "verdict": "agrees"} for row in FOUND["rows"]]
    rows.append({**FOUND["rows"][0], "figure": "on a GPU"})
    for row in rows:
        del row["unknowns"]
    (folder / "grande.json").write_text(json.dumps({**FOUND, "rows": rows}))
    assert [row["verdict"] for row in script.found(tmp_path, "grande")["rows"]] == [None, None, "open"]
    assert "agrees" not in script.summary(tmp_path)
    assert "[open: 1, to be computed again: 1](docs/reproduce/grande.md) |" in script.works(tmp_path)


def test_the_nearest_configurations_are_on_the_page(tmp_path: Path) -> None:
    assert script.fits(tmp_path).startswith("Not computed yet")
    folder = tmp_path / script.RESULTS
    folder.mkdir(parents=True)
    content = {
        "summary": "One configuration.",
        "largest_error": 0.125,
        "machine": "a machine",
        "quick": False,
        "stamp": FOUND["stamp"],
        "constants": [{"unknown": {"name": "clock", "source": "our choice"}, "value": "300 MHz"}],
        "figures": [{"figure": "speed", "paper": 4.0, "ours": 3.5, "error": 0.125}],
    }
    (folder / "grande-fit.json").write_text(json.dumps(content))
    text = script.fits(tmp_path)
    assert "**GraNDe**, at full size, computed on 2026-01-02 (a machine;" in text
    assert "| clock | 300 MHz | our choice |" in text
    assert "| speed | 4 | 3.5 | 12% |" in text
    assert "(images/reproduce/grande_fit.png)" in text
    nearest = "| one configuration within 12 % of 1 figures; [not computed yet](docs/reproduce/grande.md) |"
    assert nearest in script.works(tmp_path)
    assert "PyGim" not in text


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / script.PAGE
    page.parent.mkdir()
    page.write_text("Nothing.")
    with pytest.raises(SystemExit, match="expected the markers"):
        script.rendered(tmp_path)
