"""The task that a model learns from a data set, with generated parts if the data set lacks them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.datasets import Dataset
from onehop.errors import ArgumentError

_TRAIN, _VAL = 0.6, 0.2
_TENSORS = ("edge_index", "x", "y", "train_mask", "test_mask")


@dataclass(frozen=True)
class LearningTask:
    """A learning task: inputs, targets and nodes.

    Attributes:
        name: The data set's name.
        edge_index: [2, E].
        x: [N, F], float32.
        y: [N], int64; -1 if unknown.
        num_classes: Number of classes.
        train_mask: [N], bool.
        test_mask: [N], bool.
        notes: What was generated because the data set lacks it; empty if nothing was.
    """

    name: str
    edge_index: Tensor
    x: Tensor
    y: Tensor
    num_classes: int
    train_mask: Tensor
    test_mask: Tensor
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, seed: int = 0) -> "LearningTask":
        """Return the task that a data set gives.

        Missing features are computed from the degrees: log2(1 + degree) for in- and out-degree, standardised,
        and a one. Missing labels are the quarters of the nodes by in-degree. Without a split, 60 % of the
        labelled nodes are for training and 20 % for testing.

        Raises:
            ArgumentError: The graph has no nodes.
        """
        if dataset.num_nodes == 0:
            raise ArgumentError(f"graph: {dataset.name} has no nodes; there is nothing to learn.")
        notes = []
        x, y, num_classes = dataset.x, dataset.y, dataset.num_classes
        if x is None:
            x = degree_features(dataset)
            notes.append("it has no features: log-degrees are used")
        if y is None:
            y, num_classes = degree_labels(dataset), 4
            notes.append("it has no labels: quarters by in-degree are used")
        train, test = dataset.train_mask, dataset.test_mask
        if train is None or test is None:
            train, test = split(y >= 0, seed)
            notes.append("it has no split: 60 % train, 20 % test, drawn at random")
        return cls(dataset.name, dataset.edge_index, x.float(), y, num_classes, train, test, tuple(notes))

    def row_normalised(self) -> "LearningTask":
        """Return a copy with each node's features divided by their sum, as in PyG's ``NormalizeFeatures``."""
        return replace(self, x=self.x / self.x.sum(dim=1, keepdim=True).clamp(min=1))


def save_task(task: LearningTask, path: Path) -> None:
    """Write the tensors of a task as ``.npz``, for another process to load."""
    arrays = {name: getattr(task, name).numpy() for name in _TENSORS}
    np.savez(path, name=np.array(task.name), num_classes=np.array(task.num_classes), **arrays)


def load_task(path: Path) -> LearningTask:
    """Return the task that :func:`save_task` wrote, without its notes."""
    with np.load(path, allow_pickle=False) as arrays:
        edge_index, x, y, train, test = (torch.from_numpy(arrays[name]) for name in _TENSORS)
        return LearningTask(str(arrays["name"]), edge_index, x, y, int(arrays["num_classes"]), train, test)


def degree_features(dataset: Dataset) -> Tensor:
    """Return [N, 3], float32: standardised log2(1 + in-degree) and log2(1 + out-degree), and a one."""
    source, target = dataset.edge_index
    columns = [torch.ones(dataset.num_nodes, device="cpu")]
    for ends in (target, source):
        logs = torch.bincount(ends, minlength=dataset.num_nodes).add(1).log2()
        columns.append((logs - logs.mean()) / logs.std(correction=0).clamp(min=1e-6))
    return torch.stack(columns, dim=1)


def degree_labels(dataset: Dataset) -> Tensor:
    """Return [N], int64: 0 to 3, the quarter of the nodes to which a node belongs by its in-degree."""
    degrees = torch.bincount(dataset.edge_index[1], minlength=dataset.num_nodes)
    ordered = degrees.sort().values
    bounds = ordered[(torch.tensor([1, 2, 3], device="cpu") * len(ordered)) // 4]
    return torch.bucketize(degrees, bounds, right=True)


def split(labelled: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return masks [N] for training and for testing, drawn among the nodes with a known label."""
    nodes = labelled.nonzero().squeeze(1)
    order = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed), device="cpu")]
    cut, rest = round(_TRAIN * len(nodes)), round((_TRAIN + _VAL) * len(nodes))
    train, test = torch.zeros_like(labelled), torch.zeros_like(labelled)
    train[order[:cut]] = True
    test[order[rest:]] = True
    return train, test
