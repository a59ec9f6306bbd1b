"""Layers with features of edges, and layers that run their own messages, on 1, 2 and 4 processes."""

import pytest

from tests.distributed.launch import reports_of

pytest.importorskip("torch_geometric")


reports = reports_of("edges_worker.py")


def test_losses_and_gradients_are_those_of_one_process(reports: list[dict]) -> None:
    for report in reports:
        assert len(report["errors"]) >= 50
        # Outputs, losses, and gradients of rows, edges and parameters; float64.
        assert {name: error for name, error in report["errors"].items() if not error < 1e-12} == {}


def test_features_of_another_graph_are_named(reports: list[dict]) -> None:
    for rank, report in enumerate(reports):
        assert len(report["refusals"]) >= 6
        expected = f"expected a row for each of the {report['edges']} edges that end in nodes of rank {rank}"
        for name, text in report["refusals"].items():
            assert name == "nodes" or expected in text, text
            assert ("as all edges of the graph have" in text) == name.endswith("of the whole"), text
        assert "x: expected a row for each of the " in report["refusals"]["nodes"]
        assert (
            "expected a row for each of the 500 edges of the whole graph, got [507, 3]" in report["divided"]
        )
        assert "the graph was given self loops" in report["looped"]


def test_explain_says_where_messages_ran(reports: list[dict]) -> None:
    for rank, report in enumerate(reports):
        assert "its messages, over processes" in report["shown"]
        assert f"rank {rank} of {len(reports)}" in report["shown"]
