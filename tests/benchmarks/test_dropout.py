"""The benchmark of dropout, at its smallest."""

import json
import subprocess
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.layers.bench_dropout")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([*SCRIPT, *arguments])


def test_every_case_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "dropout.json"
    done = run("--elements", "1000,9000", "--thread-counts", "1", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    cases = json.loads(file.read_text())["cases"]
    assert len(cases) == 2 * 2 * 3
    assert {case["pass"] for case in cases} == {"forward", "backward", "both"}
    assert all(case["ratio"] > 0 for case in cases)
    assert done.stdout.count("forward") == 2 * 2


def test_an_unknown_pass_is_named() -> None:
    done = run("--passes", "sideways")
    assert done.returncode == 1
    assert "unknown sideways; there are forward, backward, both" in done.stderr
