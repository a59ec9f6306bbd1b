"""The benchmark of what is built on PyG, at its smallest."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from benchmarks.layers import bench_built_on_pyg as bench

CASES = "returned,explainers"


def test_cases_are_printed_and_written(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "built.json"
    bench.BENCHMARK.main(["--scale", "0.001", "--rounds", "1", "--cases", CASES, "--json", str(file)])
    results = json.loads(file.read_text())["results"]
    assert {row["case"].split(",")[0] for row in results} == {"mesh", "GNNExplainer", "PGExplainer"}
    assert not any(row["wrong"] for row in results)
    printed = capsys.readouterr().out
    assert all(row["case"] in printed for row in results)


@pytest.mark.parametrize("case", ["signals", "loading", "batches"])
def test_cases_of_many_kinds(case: str) -> None:
    for what, order in bench._orders(case):
        found = bench.KINDS[case]({**order, "scale": 0.01})()
        assert all(bool(each.isfinite().all()) for each in found), what
