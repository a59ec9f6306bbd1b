"""The benchmark of torch's functions, of functions of edges and of link prediction, at its smallest."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from tests.processes import run_python

CASES = "index,scatter_reduce_amax,coalesce_weights,negative_sampling,link_prediction"


def test_each_kind_of_case_is_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "functions.json"
    sizes = ("--nodes", "90", "--edges", "400", "--width", "4", "--graphs", "cora", "--rounds", "1")
    program = ("-m", "benchmarks.layers.bench_functions", "--cases", CASES)
    done = run_python([*program, *sizes, "--json", str(file)])
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())["results"]
    assert [row["case"] for row in results] == [*CASES.split(",")[:-1], "link_prediction, cora"]
    assert not any(row["wrong"] for row in results)
    assert all(row["case"] in done.stdout for row in results)
