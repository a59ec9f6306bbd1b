import json

import pytest

import onehop as library
from tests.cli.running import onehop


@pytest.fixture(autouse=True)
def unpatched():
    yield
    library.unpatch()


def test_ops_prints_and_writes_every_case(tmp_path, edge_list):
    path, plot = tmp_path / "ops.json", tmp_path / "ops.png"
    result = onehop(
        *("bench", "ops", "--graphs", edge_list, "--widths", "16,24", "--cases", "sum,max"),
        *("--peers", "scipy,torch-reduce-int32", "--rounds", 1, "--json", path, "--plot", plot),
    )
    assert result.exit_code == 0
    assert "sum 24" in result.stdout
    assert "scipy left out: does sums and means only (2 cases)" in result.stdout
    document = json.loads(path.read_text())
    assert [(r["operation"], r["width"]) for r in document["results"]] == [
        ("sum", 16),
        ("sum", 24),
        ("max", 16),
        ("max", 24),
    ]
    first = document["results"][0]
    assert set(first["times"]) == {"onehop", "scipy", "torch-reduce-int32"}
    assert {"median_s", "min_s", "lower_quartile_s", "upper_quartile_s", "rounds"} == set(
        first["times"]["onehop"]
    )
    assert first["percent_of_roof"] > 0
    assert [s["operation"] for s in document["summary"]] == ["sum", "max"]
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_ops_ends_with_code_1_where_onehop_is_wrong(monkeypatch, edge_list):
    monkeypatch.setattr("onehop.bench.peers.aggregate", lambda graph, x, weight, reduce: x + 1)
    result = onehop(
        "bench", "ops", "--graphs", edge_list, "--widths", 16, "--cases", "sum", "--peers", "scipy"
    )
    assert result.exit_code == 1
    assert "onehop is WRONG" in result.stdout


def test_models_prints_and_writes_every_case_and_the_parts_of_an_epoch(tmp_path, edge_list, forked_runs):
    pytest.importorskip("torch_geometric")
    path, plots = tmp_path / "models.json", [tmp_path / "models.png", tmp_path / "parts.png"]
    result = onehop(
        *("bench", "models", "--graphs", edge_list, "--models", "products-gcn", "--hidden", 8, "--rounds", 1),
        *("--peers", "pyg-edge_index", "--variants", "pyg-bf16", "--ablation", "keep_memory"),
        *("--json", path, "--plot", plots[0], "--parts-plot", plots[1]),
    )
    assert result.exit_code == 0
    assert "Parts of onehop's epoch" in result.stdout
    assert "it has no features" in result.stdout
    (row,) = json.loads(path.read_text())["results"]
    assert (row["model"], row["hidden"]) == ("products-gcn", 8)
    assert set(row["times"]) == {"onehop", "onehop-fresh-memory", "pyg-bf16", "pyg-edge_index"}
    assert "pyg-edge_index" in row["speedup_over"]
    assert sum(row["breakdown"]["seconds"].values()) == pytest.approx(row["times"]["onehop"]["median_s"])
    assert row["breakdown"]["x_of_floor"] > 0
    assert all(plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for plot in plots)


def test_limits_prints_and_writes_the_roofs(tmp_path, edge_list):
    path, plot = tmp_path / "limits.json", tmp_path / "limits.png"
    result = onehop(
        *("bench", "limits", "--widths", "16,32", "--graph", edge_list, "--megabytes", 1, "--rounds", 1),
        *("--threads", 1, "--json", path, "--plot", plot),
    )
    assert result.exit_code == 0
    assert "streaming read" in result.stdout
    document = json.loads(path.read_text())
    assert document["buffer_bytes"] == 1 << 20
    assert [roof["row_floats"] for roof in document["gather"]] == [16, 32]
    assert document["streaming"]["copy"]["gbps"] > 0
    assert [case["width"] for case in document["graph"]] == [16, 32]
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
