"""The script that runs the wheel beside several releases, and the tables of what it found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import render_matrix
from tests import scripts

matrix = scripts.load("matrix")
ROW = {
    "python": "3.11",
    "torch": "2.6.0",
    "pyg": "2.6.1",
    "dgl": None,
    "smoke": True,
    "passed": 9,
    "failed": 0,
}
DOCUMENT = {
    "date": "2026-01-02T03:04:05+00:00",
    "results": [
        {**ROW, "wrong": ""},
        {**ROW, "python": "3.13", "torch": "2.13.0", "pyg": "2.8.1", "dgl": "2.1.0", "wrong": ""},
        {**ROW, "torch": "2.5.0", "smoke": False, "wrong": "smoke test: no"},
    ],
}


def answers(**wrong: tuple[int, str, str]) -> Any:
    """A stand-in for commands: exit code, output and errors by a word of the command; all others succeed."""

    def run(*words: object, **_: object) -> subprocess.CompletedProcess[str]:
        told = " ".join(map(str, words))
        code, out, err = next(
            (each for word, each in wrong.items() if word in told), (0, "9 passed in 1s", "")
        )
        return subprocess.CompletedProcess(told, code, out, err)

    return run


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, {"smoke": True, "passed": 9, "failed": 0, "wrong": ""}),
        ({"install": (1, "", "a\nno torch")}, {"smoke": False, "wrong": "not installed: no torch"}),
        ({"smoke_test": (1, "", "a\nboom")}, {"smoke": False, "wrong": "smoke test: boom"}),
        (
            {"pytest -q": (1, "FAILED a.py::b - no\n1 failed, 8 passed in 1s", "")},
            {"smoke": True, "passed": 8, "failed": 1, "wrong": "a.py::b"},
        ),
        ({"pytest -q": (4, "", "usage")}, {"passed": 0, "wrong": "pytest ended with 4"}),
    ],
)
def test_what_an_environment_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: Any, expected: Any
) -> None:
    monkeypatch.setattr(matrix, "run", answers(**wrong))
    monkeypatch.setattr(matrix, "python_of", lambda version: f"python{version}")
    found = matrix.outcome(matrix.COMBINATIONS[0], tmp_path / "one.whl", tmp_path / "environment")
    assert found | expected == found
    assert found["torch"] == matrix.COMBINATIONS[0].torch


def test_a_command_that_fails_is_an_error_where_that_is_said() -> None:
    fails = (sys.executable, "-c", "import sys; sys.exit(3)")
    assert matrix.run(*fails).returncode == 3
    with pytest.raises(subprocess.CalledProcessError):
        matrix.run(*fails, check=True)


def test_a_python_that_is_missing_is_named() -> None:
    with pytest.raises(SystemExit, match=r"python3\.0 is not in PATH"):
        matrix.python_of("3.0")


def test_oldest_and_newest_are_those_that_work(tmp_path: Path) -> None:
    (tmp_path / render_matrix.RESULTS).parent.mkdir(parents=True)
    (tmp_path / render_matrix.RESULTS).write_text(json.dumps(DOCUMENT))
    (tmp_path / render_matrix.PAGE).parent.mkdir(parents=True)
    for page in (render_matrix.README, render_matrix.PAGE):
        (tmp_path / page).write_text("<!-- works with: begin --><!-- works with: end -->")
    render_matrix.main(tmp_path)
    readme, page = ((tmp_path / each).read_text() for each in (render_matrix.README, render_matrix.PAGE))
    assert "| torch | 2.6.0 | 2.13.0 |" in readme
    assert "| DGL | 2.1.0 | 2.1.0 |" in readme
    assert "2.5.0" not in readme
    assert "2.5.0" in page
    assert "smoke test: no" in page
    (tmp_path / render_matrix.RESULTS).write_text(
        json.dumps({**DOCUMENT, "results": [DOCUMENT["results"][0]]})
    )
    with pytest.raises(SystemExit, match=r"no run with DGL works yet; README\.md is left"):
        render_matrix.main(tmp_path)
    assert (tmp_path / render_matrix.README).read_text() == readme
