"""The page of PyG's example scripts."""

import json
from pathlib import Path

import pytest

from benchmarks import render_examples as script
from benchmarks.result_pictures import draw_gains
from tests.pictures import drawn, faults

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / script.RESULTS).read_text())


def test_the_page_is_what_the_results_say() -> None:
    assert script.content(DOCUMENT) in (ROOT / script.PAGE).read_text()


def test_the_largest_gain_comes_first_in_table_and_picture(tmp_path: Path) -> None:
    (tmp_path / script.RESULTS).parent.mkdir(parents=True)
    (tmp_path / script.RESULTS).write_text(json.dumps(DOCUMENT))
    (tmp_path / script.PAGE).parent.mkdir()
    (tmp_path / script.PAGE).write_text("<!-- results: begin --><!-- results: end -->")
    with drawn() as figures:
        script.main(tmp_path)
    assert [faults(figure) for figure in figures] == [[], []]
    names = [text.get_text() for text in figures[0].axes[0].get_yticklabels()]
    gains = [bar.get_width() for bar in figures[0].axes[0].patches]
    assert len(names) == len(gains) > 30
    assert gains == sorted(gains, reverse=True)
    text = (tmp_path / script.PAGE).read_text()
    lines = text.partition("## No faster")[0].splitlines()
    rows = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert rows == names


LAYER = {"class": "GCNConv", "calls": 4, "reason": None}


@pytest.mark.parametrize(
    ("layers", "failed", "told"),
    [
        (
            [LAYER, LAYER],
            {},
            "all 8 calls of GCNConv are fast, but no faster at this size, or a small part of its time",
        ),
        ([LAYER, {**LAYER, "reason": "it is sparse"}], {}, "it is sparse"),
        ([], {}, "no layer of it called PyG's propagation: it is scripted, or dense"),
        ([], {"pyg": "no\n pyg-lib"}, "no pyg-lib"),
    ],
)
def test_why_a_script_is_no_faster(layers: list, failed: dict, told: str) -> None:
    assert script.why({"layers": layers, "failed": failed}) == told


def test_a_gain_below_one_has_another_colour(tmp_path: Path) -> None:
    with drawn() as figures:
        draw_gains({"a.py": 2.0, "b.py": 0.9}, "Scripts", DOCUMENT, tmp_path / "gains")
    above, below = (bar.get_facecolor() for bar in figures[0].axes[0].patches)
    assert above != below
