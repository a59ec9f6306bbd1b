"""The page of near-bank results says what the result files say."""

from pathlib import Path

import pytest

from benchmarks.machines import render_pim as script

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_results_say() -> None:
    page = (ROOT / script.PAGE).read_text()
    assert script.rendered(page, script.results(ROOT)) == page


def test_a_page_without_a_marker_is_left_alone() -> None:
    page = (ROOT / script.PAGE).read_text().replace("<!-- memory: begin -->", "")
    with pytest.raises(SystemExit, match="markers of memory"):
        script.rendered(page, script.results(ROOT))
