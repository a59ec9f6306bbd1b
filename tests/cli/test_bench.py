import pytest

import onehop as library
from tests.cli.running import onehop, written

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def unpatched():
    yield
    library.unpatch()


def test_ops_prints_and_writes_every_case(tmp_path, edge_list):
    plot = tmp_path / "ops.png"
    document, output = written(
        *(tmp_path / "ops.json", "bench ops --graphs", edge_list, "--widths 16,24 --cases sum,max"),
        *("--peers scipy,torch-reduce-int32 --rounds 1 --plot", plot),
    )
    assert "sum 24" in output
    assert "scipy left out: does sums and means only (2 cases)" in output
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
    assert plot.read_bytes()[:8] == PNG


def test_ops_ends_with_code_1_where_onehop_is_wrong(monkeypatch, edge_list):
    monkeypatch.setattr("onehop.bench.peers.aggregate", lambda graph, x, weight, reduce: x + 1)
    result = onehop("bench ops --widths 16 --cases sum --peers scipy --graphs", edge_list)
    assert result.exit_code == 1
    assert "onehop is WRONG" in result.stdout


def test_models_prints_and_writes_every_case_and_the_parts_of_an_epoch(tmp_path, edge_list, forked_runs):
    pytest.importorskip("torch_geometric")
    plots = [tmp_path / "models.png", tmp_path / "parts.png"]
    document, output = written(
        *(tmp_path / "models.json", "bench models --graphs", edge_list, "--models products-gcn --hidden 8"),
        "--rounds 1 --peers pyg-edge_index --variants pyg-bf16 --ablation keep_memory",
        *("--plot", plots[0], "--parts-plot", plots[1]),
    )
    assert "Parts of onehop's epoch" in output
    assert "it has no features" in output
    (row,) = document["results"]
    assert (row["model"], row["hidden"]) == ("products-gcn", 8)
    assert set(row["times"]) == {"onehop", "onehop-fresh-memory", "pyg-bf16", "pyg-edge_index"}
    assert "pyg-edge_index" in row["speedup_over"]
    assert sum(row["breakdown"]["seconds"].values()) == pytest.approx(row["times"]["onehop"]["median_s"])
    assert row["breakdown"]["x_of_floor"] > 0
    assert all(plot.read_bytes()[:8] == PNG for plot in plots)


def test_limits_prints_and_writes_the_roofs(tmp_path, edge_list):
    plot = tmp_path / "limits.png"
    document, output = written(
        *(tmp_path / "limits.json", "bench limits --widths 16,32 --graph", edge_list),
        *("--megabytes 1 --rounds 1 --threads 1 --plot", plot),
    )
    assert "streaming read" in output
    assert document["buffer_bytes"] == 1 << 20
    assert [roof["row_floats"] for roof in document["gather"]] == [16, 32]
    assert document["streaming"]["copy"]["gbps"] > 0
    assert [case["width"] for case in document["graph"]] == [16, 32]
    assert plot.read_bytes()[:8] == PNG
