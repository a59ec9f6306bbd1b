"""Bipartite and heterogeneous graphs on 1, 2 and 4 processes, against PyG in one with the whole graph."""

import itertools

import pytest

from tests.distributed.launch import reports_of

pytest.importorskip("torch_geometric")

NODES = {"author": 40, "paper": 70, "venue": 9}


reports = reports_of("hetero_worker.py")


def test_losses_and_gradients_are_those_of_one_process(reports: list[dict]) -> None:
    for report in reports:
        assert len(report["errors"]) > 50
        # Outputs, gradients, and losses of three steps of Adam, which makes roundings larger; float64.
        assert {name: error for name, error in report["errors"].items() if not error < 1e-11} == {}


def test_every_node_of_every_type_has_one_owner(reports: list[dict]) -> None:
    for kind, nodes in NODES.items():
        owned = itertools.chain(*(report["owned"][kind] for report in reports))
        assert sorted(owned) == list(range(nodes))


def test_what_is_sent_is_received(reports: list[dict]) -> None:
    assert sum(report["sent"] for report in reports) == sum(report["received"] for report in reports)
    assert (reports[0]["sent"] + reports[0]["received"] > 0) == (len(reports) > 1)


def test_errors_say_what_to_do(reports: list[dict]) -> None:
    for report in reports:
        said = report["refusals"]
        assert "num_nodes: expected a number for 'paper'" in said["a type without a number"]
        assert "in [0, 5)" in said["a number out of range"] or "paper" in said["a number out of range"]
        expected = "no error" if len(reports) == 1 else "Give every rank the same relations and types"
        assert expected in said["another graph"]
        assert (
            "owner: expected ranks for each of the types author, paper, venue" in said["owners of some types"]
        )
        assert "sources and destinations of this graph are different nodes" in said["self loops"]
        assert "cannot run on a DistributedGraph's edges" in said["one tensor"]
        assert "owned sources" in said["sources of others"]
        assert "owner: expected a pair, of the sources and of the destinations" in said["not a pair"]
        assert "HGTConv computes with the edges itself" in said["HGTConv"]
        assert "author.writes.paper: DistributedGraph(rank" in report["shown"]
