"""What tests of several generators check."""

from typing import Any

import numpy as np
import scipy.sparse
import torch

from onehop.datasets import Dataset


def check_edges(first: Any, second: Any, num_nodes: int) -> None:
    """Both directions of every edge, by first ends, then by second ones, without repeats and loops."""
    first, second = (torch.as_tensor(ends).long() for ends in (first, second))
    keys = first * num_nodes + second
    assert bool((keys.diff() > 0).all()), "ascending, without repeats"
    assert torch.equal((second * num_nodes + first).sort().values, keys)
    assert bool((first != second).all())
    assert not len(first) or (first.min() >= 0 and first.max() < num_nodes)


def check_progress(told: list[float]) -> None:
    """Progress rises to the whole."""
    assert told == sorted(told)
    assert told[-1] == 1.0


def name_of(dataset: Dataset) -> str:
    return dataset.name.removeprefix("twin:").split(" ")[0]


def same(one: Dataset, other: Dataset) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in Dataset.__slots__]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def adjacency(dataset: Dataset) -> scipy.sparse.csr_array:
    """[N, N]: 1 for each edge, in the row of its destination, and for each node."""
    size = (dataset.num_nodes, dataset.num_nodes)
    edges = (np.ones(dataset.num_edges), tuple(dataset.edge_index.numpy()[::-1]))
    return scipy.sparse.csr_array(edges, shape=size) + scipy.sparse.eye_array(size[0], format="csr")


def chance(dataset: Dataset) -> float:
    """The accuracy of the most frequent class."""
    return float(torch.bincount(dataset.y).max()) / dataset.num_nodes


def accuracy(x: np.ndarray, dataset: Dataset) -> float:
    """Test accuracy of ridge regression on the classes."""
    table = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    y, train, test = dataset.y.numpy(), dataset.train_mask.numpy(), dataset.test_mask.numpy()
    known = table[train]
    weights = np.linalg.solve(
        known.T @ known + np.eye(table.shape[1]), known.T @ np.eye(dataset.num_classes)[y[train]]
    )
    return float(((table @ weights).argmax(axis=1) == y)[test].mean())
