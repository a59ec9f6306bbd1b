"""The benchmark of what is built on PyG, at its smallest."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from tests.processes import run_python

CASES = "returned,explainers"


def test_cases_are_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "built.json"
    program = ("-m", "benchmarks.layers.bench_built_on_pyg", "--scale", "0.001", "--rounds", "1")
    done = run_python([*program, "--cases", CASES, "--json", str(file)])
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())["results"]
    assert {row["case"].split(",")[0] for row in results} == {"mesh", "GNNExplainer", "PGExplainer"}
    assert not any(row["wrong"] for row in results)
    assert all(row["case"] in done.stdout for row in results)


@pytest.mark.parametrize("case", ["signals", "loading", "batches"])
def test_cases_of_many_kinds(case: str) -> None:
    from benchmarks.layers import bench_built_on_pyg as bench

    for what, order in bench._orders(case):
        found = bench.KINDS[case]({**order, "scale": 0.01})()
        assert all(bool(each.isfinite().all()) for each in found), what
