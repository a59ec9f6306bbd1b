"""The benchmark of sparse matrices, at its smallest."""

import json
import subprocess
from pathlib import Path

from tests.processes import run_python

SCRIPT = ("-m", "benchmarks.layers.bench_matrices")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([*SCRIPT, *arguments])


def test_every_layer_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "matrices.json"
    done = run(
        "--layers", "GCN,SAGE max", "--edges", "600", "--rounds", "1", "--width", "8", "--json", str(file)
    )
    assert done.returncode == 0, done.stderr
    cases = json.loads(file.read_text())["cases"]
    assert [case["layer"] for case in cases] == ["GCN", "SAGE max"]
    assert all(case["speedup"] > 0 and len(case["seconds"]) == 4 for case in cases)
    assert "GCN" in done.stdout


def test_an_unknown_layer_is_named() -> None:
    done = run("--layers", "Nothing")
    assert done.returncode == 1
    assert "unknown Nothing; there are SAGE, " in done.stderr
