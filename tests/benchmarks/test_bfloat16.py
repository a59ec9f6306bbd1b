"""The benchmark of bfloat16, at its smallest."""

import json
import subprocess
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.models.bench_bfloat16")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([*SCRIPT, *arguments])


def test_every_model_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "bfloat16.json"
    small = ("--graph", "twin:cora", "--hidden", "16", "--rounds", "1", "--epochs", "2", "--seeds", "1")
    done = run("--models", "ogb-gcn,ogb-sage,gat", *small, "--json", str(file))
    assert done.returncode == 0, done.stderr
    cases = json.loads(file.read_text())["cases"]
    assert [case["model"] for case in cases] == ["ogb-gcn", "ogb-sage", "gat"]
    for case in cases:
        assert case["ratio"] > 0
        assert {len(values) for values in case["accuracy"].values()} == {1}
    assert "accuracies" in done.stdout


def test_an_unknown_model_is_named() -> None:
    done = run("--models", "nothing")
    assert done.returncode == 1
    assert "unknown nothing; there are ogb-gcn, " in done.stderr
