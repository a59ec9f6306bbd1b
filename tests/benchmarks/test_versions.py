"""The comparison of two versions, of one version with itself, on a small graph."""

import json
import subprocess
import sys
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.versions.bench_versions")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([*SCRIPT, *arguments])


def test_models_and_operators_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    done = run(
        *("--other", sys.executable, "--graphs", "cora", "--rounds", "1", "--json", str(file)),
        *("--cases", "gcn:8,sage-sum:8,sum:8,weighted:8,sum+grad:8"),
    )
    assert done.returncode == 0, done.stderr
    cases = json.loads(file.read_text())["cases"]
    assert [case["case"] for case in cases] == ["gcn:8", "sage-sum:8", "sum:8", "weighted:8", "sum+grad:8"]
    assert all(set(case["over_this"]) == {"other", "PyG"} for case in cases)
    assert all(seconds > 0 for case in cases for seconds in case["seconds"].values())


def test_a_version_that_is_missing_is_named(tmp_path: Path) -> None:
    done = run("--other", str(tmp_path / "python"), "--graphs", "cora", "--cases", "sum:8")
    assert done.returncode != 0
    assert str(tmp_path / "python") in done.stderr
