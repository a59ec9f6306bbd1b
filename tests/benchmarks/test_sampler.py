"""The benchmark of samplers: what it checks before it measures, and what it prints."""

import argparse

import pytest
import torch
import torch_geometric.typing
from torch_geometric.data import Data

import onehop
from benchmarks.minibatch import bench_sampler


@pytest.fixture
def data(generator: torch.Generator) -> Data:
    return Data(x=torch.ones(50, 2), edge_index=torch.randint(0, 50, (2, 400), generator=generator))


@pytest.mark.parametrize("name", ["draw", "batch"])
def test_ours_alone_is_measured(data: Data, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    options = argparse.Namespace(batches=2, rounds=3)
    row = bench_sampler.measured(name, data, [3, 2], torch.arange(20), options)
    assert set(row["seconds"]) == {"onehop"}
    assert row["nodes"] >= 20
    assert "speedup" not in row


def test_a_batch_with_too_few_neighbours_ends_it(data: Data) -> None:
    with onehop.patch(sampler=True):
        batch = next(iter(bench_sampler.loader_of(data, [3], torch.arange(20))))
    bench_sampler.check(data, batch, [3])
    with pytest.raises(SystemExit, match="nothing was measured"):
        bench_sampler.check(data, batch, [4])
    batch.edge_index = batch.edge_index.flip(1)
    with pytest.raises(SystemExit, match="nothing was measured"):
        bench_sampler.check(data, batch, [3])


def test_an_epoch_of_ours_alone(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    data.y = torch.arange(50) % 3
    training = bench_sampler.Training(data, 3, [3, 2], torch.arange(20))
    row = bench_sampler.epochs(training, rounds=3)
    assert set(row["seconds"]) == set(row["step_seconds"]) == {"onehop"}
    assert row["step_seconds"]["onehop"]["median_s"] < row["seconds"]["onehop"]["median_s"]
    assert row["difference"] <= bench_sampler.TOLERANCE
    assert bench_sampler.targets([{"case": "draw"}, row]) == []
    options = argparse.Namespace(noted={"targets": []})
    assert [*bench_sampler.notes(options, [row])] == [
        "PyG has nothing to draw with here; no target was measured."
    ]


def test_other_gradients_end_it(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    data.y = torch.arange(50) % 3
    training = bench_sampler.Training(data, 3, [3, 2], torch.arange(20))
    monkeypatch.setattr(bench_sampler, "TOLERANCE", -1.0)
    with pytest.raises(SystemExit, match="no epoch was measured"):
        bench_sampler.check_gradients(training)


def test_targets_are_held_against_what_was_found() -> None:
    rows = [{"case": "draw", "speedup": 1.5}, {"case": "epoch", "epoch_over_step": 0.96}]
    found = bench_sampler.targets(rows)
    assert [each["reached"] for each in found] == [False, True]
    assert "not reached" in next(bench_sampler.notes(argparse.Namespace(noted={"targets": found}), rows))
