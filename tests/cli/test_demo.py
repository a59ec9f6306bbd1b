import pytest

from onehop.bench.recipes import RECIPES
from onehop.cli import demo
from tests.cli.running import written

pytest.importorskip("torch_geometric")
pytestmark = pytest.mark.usefixtures("forked_runs")


def test_demo_compares_on_a_file_without_features(tmp_path, edge_list):
    plot = tmp_path / "demo.png"
    arguments = ("--model gcn --hidden 4 --epochs 2 --threads 1 --plot", plot)
    document, output = written(tmp_path / "demo.json", "demo --graph", edge_list, *arguments)
    assert "it has no features" in output
    assert "speed-up" in output
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    (row,) = document["models"]
    assert document["stamp"]["threads"] == 1
    assert row["largest_loss_difference"] < 1e-4
    assert row["pyg"]["test_accuracy"] == row["onehop"]["test_accuracy"]
    assert len(row["onehop"]["losses"]) == 2
    assert row["onehop"]["peak_bytes"] > 0


def test_demo_trains_published_models_on_graphs_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = "demo --model cora-gcn,cora-gat --epochs 2 --threads 1"
    document, output = written(tmp_path / "demo.json", arguments)
    assert "Chart" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]
    rows = document["models"]
    assert [(row["model"], row["hidden"], row["epochs"]) for row in rows] == [
        ("cora-gcn", 16, 2),
        ("cora-gat", 64, 2),
    ]
    assert all("cora" in row["graph"] for row in rows)
    # Dropout draws the same numbers in both processes.
    assert all(row["largest_loss_difference"] < 1e-4 for row in rows)
    assert not any("labels" in note for note in document["notes"])


def test_models_of_the_demo_are_known():
    assert {demo._MODELS.get(name, name) for name in demo.TITLES} <= set(RECIPES)


def test_demo_works_with_a_real_graph(tmp_path, data_folder):
    graph = data_folder / "cornell5.mat"  # models of the authors' own run with cora.npz
    document, _ = written(tmp_path / "demo.json", "demo --model gcn --hidden 4 --epochs 1 --graph", graph)
    assert document["models"][0]["largest_loss_difference"] < 1e-4
    assert not any("labels" in note for note in document["notes"])
