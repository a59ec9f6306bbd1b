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
def test_ours_alone_is_measured(
    data: Data, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", False)
    options = argparse.Namespace(batches=2, rounds=3)
    row = bench_sampler.measured(name, data, [3, 2], torch.arange(20), options)
    assert set(row["seconds"]) == {"onehop"}
    assert row["nodes"] >= 20
    assert "PyG has nothing to draw with here" in capsys.readouterr().out


def test_a_batch_with_too_few_neighbours_ends_it(data: Data) -> None:
    with onehop.patch(sampler=True):
        batch = next(iter(bench_sampler.loader_of(data, [3], torch.arange(20))))
    bench_sampler.check(data, batch, [3])
    with pytest.raises(SystemExit, match="nothing was measured"):
        bench_sampler.check(data, batch, [4])
    batch.edge_index = batch.edge_index.flip(1)
    with pytest.raises(SystemExit, match="nothing was measured"):
        bench_sampler.check(data, batch, [3])
