"""The page of published figures says what the result files say."""

import json
from pathlib import Path

import pytest

from benchmarks import render_reproductions as script
from onehop.reproduce import WORKS

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
            "figure": "speed",
            "paper": 4.0,
            "ours": None,
            "ratio": None,
            "low": None,
            "high": None,
            "unit": "x",
            "note": "Needs a GPU.",
        }
    ],
}


def test_the_page_is_what_the_results_say() -> None:
    page = (ROOT / script.PAGE).read_text()
    assert script.rendered(ROOT, page) == page


def test_sections_of_works_that_were_computed_and_that_were_not(tmp_path: Path) -> None:
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
    assert "| speed | 4 |  |  |  | x | Needs a GPU. |" in text
    assert "(images/reproduce/grande_bars.png)" in text
    assert script.section(tmp_path, "pygim") == "Not computed yet: `make figures WORKS=pygim`."


def test_a_page_without_a_marker_is_left_alone() -> None:
    page = (ROOT / script.PAGE).read_text()
    for work in WORKS:
        with pytest.raises(SystemExit, match=f"markers of {work}"):
            script.rendered(ROOT, page.replace(f"<!-- {work}: begin -->", ""))
