"""The loaders of other collections, with stand-ins for what needs a network."""

import builtins
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import ArgumentError
from onehop.datasets import load, ogb, pyg
from onehop.errors import DatasetError

pytestmark = pytest.mark.usefixtures("own_cache")


class Unreachable:
    """A collection whose download fails."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        raise OSError("Cannot connect to host")


class FewPapers:
    """What ogb's NodePropPredDataset offers, with four nodes."""

    num_classes = 3
    made = 0

    def __init__(self, name: str, root: str) -> None:
        assert name == "ogbn-arxiv"
        type(self).made += 1
        Path(root).mkdir(parents=True, exist_ok=True)

    def __getitem__(self, index: int) -> tuple[dict[str, object], np.ndarray]:
        graph = {
            "num_nodes": 4,
            "edge_index": np.array([[0, 1, 1], [1, 2, 0]]),
            "node_feat": np.arange(8, dtype=np.float32).reshape(4, 2),
        }
        return graph, np.array([[0], [2], [1], [0]])

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return {"train": np.array([0, 3]), "valid": np.array([1]), "test": np.array([2])}


def put_ogb(monkeypatch: pytest.MonkeyPatch, collection: type) -> None:
    package, module = types.ModuleType("ogb"), types.ModuleType("ogb.nodeproppred")
    module.NodePropPredDataset = collection
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)


def take_away(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **options: object) -> object:
        if name.split(".")[0] == package:
            raise ImportError(f"No module named {name!r}")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)


def test_ogb_gives_both_directions_and_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    put_ogb(monkeypatch, FewPapers)
    dataset = load("ogb:ogbn-arxiv")
    assert dataset.name == "ogb:ogbn-arxiv"
    assert dataset.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert dataset.y.tolist() == [0, 2, 1, 0]
    assert dataset.train_mask.tolist() == [True, False, False, True]
    assert dataset.val_mask.tolist() == [False, True, False, False]
    assert dataset.test_mask.tolist() == [False, False, True, False]
    assert (dataset.num_classes, dataset.num_features) == (3, 2)


def test_ogb_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    put_ogb(monkeypatch, FewPapers)
    FewPapers.made = 0
    first, second = ogb("ogbn-arxiv"), ogb("ogbn-arxiv")
    assert FewPapers.made == 1
    assert torch.equal(first.x, second.x)


def test_pyg_takes_planetoid_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    geometric = pytest.importorskip("torch_geometric")
    mask = torch.tensor([True, False, False])
    data = geometric.data.Data(
        x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 1]),
        train_mask=mask, val_mask=mask.roll(1), test_mask=mask.roll(2),
    )  # fmt: skip

    class Planetoid(list):
        num_classes = 2

        def __init__(self, root: str, name: str) -> None:
            super().__init__([data])
            assert name == "Cora"

    monkeypatch.setattr("torch_geometric.datasets.Planetoid", Planetoid)
    dataset = load("pyg:Cora")
    assert dataset.name == "pyg:Cora"
    assert dataset.num_nodes == 3
    assert torch.equal(dataset.edge_index, data.edge_index)
    assert torch.equal(dataset.test_mask, data.test_mask)


@pytest.mark.parametrize(("loader", "name"), [(pyg, "Cora"), (ogb, "ogbn-arxiv")])
def test_without_a_network(loader, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    put_ogb(monkeypatch, Unreachable)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", Unreachable)
    sentence = rf"{loader.__name__}:{name} could not be downloaded .* Cannot connect to host.* the twins"
    with pytest.raises(DatasetError, match=sentence):
        loader(name)


@pytest.mark.parametrize(
    ("loader", "name", "package", "extra"),
    [(pyg, "Cora", "torch_geometric", "pyg"), (ogb, "ogbn-arxiv", "ogb", "datasets")],
)
def test_not_installed(loader, name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away(monkeypatch, package)
    with pytest.raises(DatasetError, match=rf"pip install 'onehop\[{extra}\]'"):
        loader(name)


@pytest.mark.parametrize(
    ("loader", "known"), [(pyg, "Cora, CiteSeer, PubMed"), (ogb, "ogbn-arxiv, ogbn-products")]
)
def test_unknown_names(loader, known: str) -> None:
    with pytest.raises(ArgumentError, match=known):
        loader("nothing")
