"""Full-graph training of unchanged PyG models on 1, 2 and 4 processes."""

import pytest

from onehop.distributed import cost
from tests.distributed.launch import reports_of

pytest.importorskip("torch_geometric")

EPOCHS, FEATURES, HIDDEN, CLASSES = 4, 12, 8, 5
# Columns sent forward in both layers, and backward; the first layer of SAGE sends features, which need no
# gradient, and GAT a score for every head beside each row.
COLUMNS = {
    "gcn": 2 * (HIDDEN + CLASSES),
    "sage": FEATURES + 2 * HIDDEN,
    "gatv2": 2 * (2 * HIDDEN + CLASSES),
    "gat": 2 * (2 * HIDDEN + 2 + CLASSES + 1),
    "transformer": 2 * 2 * (HIDDEN + CLASSES),
}


reports = reports_of("training_worker.py", [1, 2, 4], "together")


def test_losses_are_those_of_one_process(reports: list[dict], alone: dict[str, list[float]]) -> None:
    for report in reports:
        assert report["losses"].keys() == alone.keys()
        for name, losses in report["losses"].items():
            # float64, four steps of Adam; GAT's softmax in PyG divides by a sum + 1e-16.
            assert losses == pytest.approx(alone[name], rel=1e-9), name
        assert losses[-1] < losses[0]


def test_gradients_of_edge_weights(reports: list[dict]) -> None:
    assert max(report["weight_error"] for report in reports) < 1e-11


def test_bytes_of_an_epoch(reports: list[dict]) -> None:
    for name, columns in COLUMNS.items():
        sent = sum(report["sent"][name] for report in reports)
        assert sent == reports[0]["cut"] * EPOCHS * columns * 8, name


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_model_of_traffic_is_exact(reports: list[dict], model: str) -> None:
    columns = cost.columns(model, FEATURES, HIDDEN, CLASSES)
    expected = EPOCHS * cost.traffic_bytes(reports[0]["cut"], columns, 8)
    assert sum(report["sent"][model] for report in reports) == expected


def test_explain_says_where_it_ran(reports: list[dict]) -> None:
    for rank, report in enumerate(reports):
        assert "over processes" in report["explanation"]
        assert f"rank {rank} of {len(reports)}" in report["explanation"]


def test_what_cannot_run_is_an_error(reports: list[dict]) -> None:
    for report in reports:
        *layers, weight = report["refusals"]
        for text, name in zip(layers, ("GINEConv", "SAGEConv", "GATConv"), strict=True):
            assert text.startswith(f"edge_index: {name} cannot run on a DistributedGraph's edges:"), text
        assert "weight[graph.owned_edges]" in weight
