"""Steps of ``make bench``: what is measured again, and what is not."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import render_results, steps
from onehop.bench.results import write_json

STEP = steps.Step("layers", 1, "a.module", "--all", "--graphs {graphs}")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was run, in order; each step writes a file, and is of the commit "one"."""
    runs: list[list[str]] = []

    def measure(step: steps.Step, words: list[str], path: Path) -> None:
        runs.append(words)
        write_json(path, step.name, {"results": [len(runs)]})

    monkeypatch.setattr(steps, "measure", measure)
    monkeypatch.setattr(steps, "commit", lambda: "one")
    return runs


def test_a_whole_step_is_measured_once(measured: list[list[str]], tmp_path: Path) -> None:
    assert steps.run(STEP, ["--all"], tmp_path)
    assert not steps.run(STEP, ["--all"], tmp_path)
    assert len(measured) == 1
    document = json.loads((tmp_path / "layers.json").read_text())
    assert document["results"] == [1]
    origin = {"commit": "one", "arguments": ["--all"]}
    assert document["step"] == origin | {key: document["stamp"][key] for key in steps.SAME}
    assert [path.name for path in tmp_path.iterdir()] == ["layers.json"]


@pytest.mark.parametrize(
    "changed", ["commit", "arguments", "machine", "threads", "uncommitted", "interrupted"]
)
def test_what_differs_is_measured_again(
    measured: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    steps.run(STEP, ["--all"], tmp_path)
    path, words = tmp_path / "layers.json", ["--all"]
    document: dict[str, Any] = json.loads(path.read_text())
    if changed == "commit":
        monkeypatch.setattr(steps, "commit", lambda: "two")
    elif changed == "uncommitted":
        monkeypatch.setattr(steps, "commit", lambda: None)
    elif changed == "arguments":
        words = ["--some"]
    elif changed == "interrupted":  # as a script itself writes, row by row
        path.unlink()
        (tmp_path / "layers.one.partial.json").write_text(json.dumps(document))
    else:
        document["step"][changed] = "another"
        path.write_text(json.dumps(document))
    assert steps.run(STEP, words, tmp_path)
    assert json.loads(path.read_text())["results"] == [2]


def test_a_step_that_fails_leaves_the_results_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "layers.json").write_text("{}")
    step = steps.Step("layers", 1, "benchmarks", "--all", "")
    with pytest.raises(SystemExit, match="layers: -m benchmarks"):
        steps.run(step, step.words(None, tmp_path), tmp_path)
    assert (tmp_path / "layers.json").read_text() == "{}"


def test_steps_cover_the_documents_within_an_hour() -> None:
    names = {step.name for step in steps.STEPS}
    assert names == {*render_results.NEEDED, *render_results.MORE}
    assert sum(step.minutes for step in steps.STEPS) <= 60


def test_the_steps_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    steps.main(["--list", "--graphs", "cora", "--only", "ops,small"])
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 3
    assert "onehop bench ops --rounds 1 --graphs cora --widths 32" in listed[1]
    with pytest.raises(SystemExit, match="unknown nothing; there are limits, "):
        steps.main(["--only", "nothing"])
    with pytest.raises(SystemExit, match="expected a checkout of PyG"):
        steps.main([])


def test_the_commit_is_that_of_the_code() -> None:
    done = subprocess.run(
        ["git", "status", "--porcelain", "--", *steps.CODE],
        cwd=steps.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = steps.commit()
    assert found is None if done.returncode or done.stdout else len(found or "") == 40
