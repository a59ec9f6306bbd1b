"""Sampled training over 1, 2 and 4 processes: the losses of one, and the traffic that can be counted."""

import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import onehop
from onehop import distributed
from onehop.datasets import planted
from tests.distributed.launch import PROCESSES, ended, run, start
from tests.distributed.test_failures import sentence

pytest.importorskip("torch_geometric")

NODES, CLASSES, WIDTH = 960, 4, 8
EPOCHS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sampled")
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), NODES // CLASSES))
    edge_index = planted.edges(rng, labels, num_pairs=4 * NODES, exponent=0.3, same_class=0.8)
    x = torch.from_numpy(planted.vectors(rng, labels, WIDTH, 1.5))
    onehop.Graph.from_edge_index(edge_index, NODES).save(made / "whole")
    torch.save(torch.from_numpy(labels), made / "y.pt")
    for parts in PROCESSES:
        distributed.save(made / f"parts-{parts}", edge_index, NODES, parts=parts, tensors={"x": x})
    return made


@pytest.fixture(scope="module", params=["-1", "5"])
def reports(request: pytest.FixtureRequest, folder: Path) -> tuple[str, dict[int, list[dict]]]:
    return request.param, {
        parts: run("sampled_worker.py", parts, str(folder), request.param, str(EPOCHS)) for parts in PROCESSES
    }


def test_losses_and_accuracy_are_those_of_one_process(reports: tuple[str, dict[int, list[dict]]]) -> None:
    fan_out, by_parts = reports
    (alone,) = by_parts[1]
    assert len(alone["losses"]) == EPOCHS * 6
    assert alone["accuracy"] > 0.9
    for parts in PROCESSES:
        for report in by_parts[parts]:
            assert report["losses"] == by_parts[parts][0]["losses"]
        found = np.array(by_parts[parts][0]["losses"])
        if fan_out == "-1":
            # Nothing is left to chance: the same batches in shares, so the same losses but for rounding.
            assert np.allclose(found, alone["losses"], rtol=1e-4)
            assert by_parts[parts][0]["accuracy"] == pytest.approx(alone["accuracy"], abs=0.005)
        else:
            # A batch's shares have other neighbours than the whole batch, of the same distribution.
            last = found[-12:].mean(), np.mean(alone["losses"][-12:])
            assert abs(last[0] - last[1]) < 0.1 * last[1] + 0.02
            assert abs(by_parts[parts][0]["accuracy"] - alone["accuracy"]) < 0.03


def test_traffic_is_as_counted(reports: tuple[str, dict[int, list[dict]]]) -> None:
    _, by_parts = reports
    for parts in PROCESSES:
        for report in by_parts[parts]:
            assert report["received"] == report["needed"]
            assert report["hits"] == report["expected_hits"]
            assert report["kept"] == min(25, report["halo"])
        assert sum(each["sent"] for each in by_parts[parts]) == sum(
            each["needed"] for each in by_parts[parts]
        )
    assert by_parts[1][0]["needed"] == 0
    assert all(report["needed"] > 0 and report["hits"] > 0 for report in by_parts[4])


def test_a_rank_that_dies_ends_the_others_with_its_name(folder: Path) -> None:
    processes = start("sampled_worker.py", 4, str(folder), "5", "3", "1")
    reports = ended(processes, timeout=600)
    assert reports[1].returncode == -signal.SIGKILL
    for rank in (0, 2, 3):
        assert reports[rank].returncode == 1, reports[rank].stderr
        assert not reports[rank].stdout
        text = sentence(reports[rank].stderr, rank)
        assert f"rank 1 (process {processes[1].pid} on " in text, text
        assert "start it again from its last checkpoint" in text
