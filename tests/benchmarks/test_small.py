"""The benchmark of small graphs, at its smallest."""

import json
import subprocess
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.layers.bench_small")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([*SCRIPT, *arguments])


def test_every_case_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    done = run("--layers", "GCN,Cheb", "--edges", "60", "--rounds", "1", "--width", "8", "--json", str(file))
    assert done.returncode == 0, done.stderr
    cases = json.loads(file.read_text())["cases"]
    assert len(cases) == 2 * 2 * 2
    assert {case["layer"] for case in cases} == {"GCN", "Cheb"}
    assert all(case["ratio"] > 0 and case["control"] > 0 for case in cases)
    assert "60 edges: least" in done.stdout


def test_an_unknown_layer_is_named() -> None:
    done = run("--layers", "Nothing")
    assert done.returncode == 1
    assert "unknown Nothing; there are GCN, " in done.stderr
