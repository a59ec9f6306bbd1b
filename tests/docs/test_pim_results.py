"""The page of near-bank results says what the result files say."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location(
        "render_pim", ROOT / "benchmarks" / "machines" / "render_pim.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_say(script: Any) -> None:
    page = (ROOT / script.PAGE).read_text()
    assert script.rendered(page, script.results(ROOT)) == page


def test_a_page_without_a_marker_is_left_alone(script: Any) -> None:
    page = (ROOT / script.PAGE).read_text().replace("<!-- memory: begin -->", "")
    with pytest.raises(SystemExit, match="markers of memory"):
        script.rendered(page, script.results(ROOT))
