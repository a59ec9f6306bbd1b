"""The benchmark of torch's functions, of functions of edges and of link prediction, at its smallest."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from benchmarks.layers import bench_functions

CASES = "index,mask,scatter_reduce_amax,coalesce_weights,negative_sampling,link_prediction"


def test_each_kind_of_case_is_printed_and_written(
    in_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "functions.json"
    sizes = ("--nodes", "90", "--edges", "400", "--width", "4", "--graphs", "cora", "--rounds", "1")
    bench_functions.BENCHMARK.main(["--cases", CASES, *sizes, "--json", str(file)])
    results = json.loads(file.read_text())["results"]
    assert [row["case"] for row in results] == [*CASES.split(",")[:-1], "link_prediction, cora"]
    assert not any(row["wrong"] for row in results)
    printed = capsys.readouterr().out
    assert all(row["case"] in printed for row in results)
