"""The real graphs that ONEHOP_DATA names: the figures of their publishers."""

from pathlib import Path

import numpy as np
import scipy.io
import torch

from onehop import Graph, datasets, files


def test_cora(data_folder: Path) -> None:
    content = files.read(data_folder / "cora.npz")
    assert content.size == (2708, 2708)
    assert content.edge_index.shape == (2, 5429)
    assert content.weight is None
    assert content.x.shape == (2708, 1433)
    assert set(content.x.unique().tolist()) == {0.0, 1.0}
    assert content.num_classes == 7
    dataset = datasets.from_file(data_folder / "cora.npz")
    assert dataset.num_edges == 10556
    assert int(dataset.train_mask.sum() + dataset.val_mask.sum() + dataset.test_mask.sum()) == 2708
    graph = Graph.load(data_folder / "cora.npz")
    assert graph.num_edges == 5429
    with np.load(data_folder / "cora.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(graph.rowptr.numpy(), arrays["adj_indptr"])
        np.testing.assert_array_equal(graph.col.numpy(), arrays["adj_indices"])


def test_tolokers(data_folder: Path) -> None:
    content = files.read(data_folder / "tolokers.npz")
    assert content.size == (11758, 11758)
    assert content.edge_index.shape == (2, 2 * 519000)
    assert content.x.shape == (11758, 10)
    assert content.num_classes == 2
    masks = torch.stack([content.train_masks, content.val_masks, content.test_masks])
    assert masks.shape == (3, 10, 11758)
    assert bool((masks.sum(dim=0) == 1).all())
    graph = Graph.load(data_folder / "tolokers.npz")
    assert torch.equal(graph.in_degrees, graph.out_degrees)
    dataset = datasets.from_file(data_folder / "tolokers.npz", split=3)
    assert torch.equal(dataset.train_mask, content.train_masks[3])
    assert dataset.num_edges == 2 * 519000


def test_cornell5(data_folder: Path) -> None:
    content = files.read(data_folder / "cornell5.mat")
    assert content.size == (18660, 18660)
    assert content.edge_index.shape == (2, 1581554)
    assert content.weight is None
    assert content.num_classes == 2
    assert torch.bincount(content.y + 1).tolist() == [1838, 8135, 8687]
    assert content.x.shape[0] == 18660
    # One feature at most for each of the six columns.
    assert content.x.sum(dim=1).max() <= 6
    assert content.x.sum(dim=0).min() >= 10
    dataset = datasets.from_file(data_folder / "cornell5.mat")
    assert dataset.num_edges == 1581554
    parts = dataset.train_mask | dataset.val_mask | dataset.test_mask
    assert torch.equal(parts, content.y >= 0)
    by_scipy = Graph.from_scipy(scipy.io.loadmat(data_folder / "cornell5.mat")["A"])
    assert torch.equal(by_scipy.edge_index(), content.edge_index)
