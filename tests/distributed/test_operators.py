"""Operators, gradients, traffic and errors on 1, 2 and 4 processes, against one with the whole graph."""

import itertools
from pathlib import Path

import pytest

from onehop import distributed
from tests.distributed.cases import NODES, hostile, random
from tests.distributed.launch import run

# float64; sums of at most 120 numbers of about 1 in another order.
TOLERANCE = 1e-11


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Partitioned graphs for 1, 2, 3 and 4 processes."""
    root = tmp_path_factory.mktemp("parts")
    for parts in (1, 2, 3, 4):
        distributed.save(
            root / str(parts),
            hostile(),
            NODES,
            parts=parts,
            method="greedy",
            tensors={"x": random(NODES, 4)},
            edge_tensors={"w": random(hostile().size(1), 2)},
        )
    return {parts: root / str(parts) for parts in (1, 2, 3, 4)}


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n}-processes")
def reports(request: pytest.FixtureRequest, folders: dict[int, Path]) -> list[dict]:
    return run("operators_worker.py", request.param, str(folders[request.param]), str(folders[3]))


def test_outputs_and_gradients(reports: list[dict]) -> None:
    for report in reports:
        assert {name: error for name, error in report["worst"].items() if not error < TOLERANCE} == {}
        assert len(report["worst"]) == 3 * (12 + 1 + 4 + 6) + 1


def test_same_bits_again_and_16_bits_and_nan(reports: list[dict]) -> None:
    assert all(report["repeats"] and report["sixteen"] and report["nan"] for report in reports)


def test_traffic_is_cut_times_width_times_bytes(reports: list[dict]) -> None:
    # float64, once forward and once backward. Keys and values go together, scores of GAT with the rows.
    columns = {"sum 1": 1, "sum 3": 3, "max 17": 17, "mean 17": 17, "scales": 8}
    columns |= {"gat": 3 * 5 + 3, "gatv2": 3 * 5, "attention": 2 * 3 * 5}
    for label, (name, width) in itertools.product(("greedy", "scattered"), columns.items()):
        found = [report["traffic"][f"{label} {name}"] for report in reports]
        expected = 2 * reports[0]["cut"][label] * width * 8
        assert sum(sent for sent, _, _ in found) == expected
        assert sum(received for _, received, _ in found) == expected
        assert [exchanges for _, _, exchanges in found] == [2] * len(reports)
    if len(reports) > 1:
        assert reports[0]["cut"]["greedy"] > 0


def test_rows_travel_while_this_process_computes(reports: list[dict]) -> None:
    forward = ["posted", "computed", "waited", "computed"]
    backward = ["computed", "posted", "computed", "waited"]
    assert all(report["events"] == forward + backward for report in reports)


def test_every_node_has_one_owner(reports: list[dict]) -> None:
    assert sorted(itertools.chain(*(report["owned"] for report in reports))) == list(range(NODES))


def test_errors_say_what_to_do(reports: list[dict]) -> None:
    alone = len(reports) == 1
    for rank, report in enumerate(reports):
        errors = report["errors"]
        assert ("no error" if alone else "of ranks [") in errors["another graph"]
        if not alone:
            assert "Give every rank the same graph" in errors["another graph"]
            where = "source 60 of edge 0" if rank == 1 else "failed on rank 1: IndexRangeError"
            assert where in errors["out of range on rank 1"]
        expected = f"written for 3 processes, and this job has {len(reports)}. Start 3 processes, or save"
        assert expected in errors["wrong number of parts"]
        assert "there is no such folder" in errors["no such folder"]
        assert (
            f"that rank {rank} owns (x[graph.owned_nodes]), got shape"
            in (errors["features of the wrong length"])
        )
        assert "edges that end in owned nodes, got shape [501]" in errors["weight of the wrong length"]
        assert f"owner: expected ranks from 0 to {len(reports) - 1}" in errors["wrong owner"]
        assert "expected an onehop.distributed.DistributedGraph, got Graph" in errors["a plain graph"]
        assert "index your tensor with owned_nodes instead" in errors["not opened"]
        assert "take edge_rows of your tensor instead" in errors["edges not opened"]
