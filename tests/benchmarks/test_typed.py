"""The benchmark of typed edges, at its smallest."""

import json
import subprocess
from pathlib import Path

from tests.processes import run_python

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "layers" / "bench_typed.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python([SCRIPT, *arguments])


def test_every_layer_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "typed.json"
    layers = ["fast-rgcn", "han", "hgt", "rgat", "heat", "hetero-sage", "hetero-gat", "to-hetero-sage"]
    sizes = ("--edges", "600", "--relations", "11", "--rounds", "1")
    done = run("--layers", ",".join(layers), *sizes, "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["results"]
    assert [row["layer"] for row in rows] == layers
    assert not any(row["wrong"] for row in rows)
    assert "hgt" in done.stdout


def test_peaks_are_measured_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "typed.json"
    done = run("--layers", "hgt", "--edges", "600", "--rounds", "1", "--memory", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["results"]
    assert min(row["peak_bytes"].values()) > 0
    assert " MB (1/" in done.stdout


def test_an_unknown_layer_is_named() -> None:
    done = run("--layers", "nothing")
    assert done.returncode == 1
    assert "unknown nothing; there are rgcn-5, " in done.stderr
