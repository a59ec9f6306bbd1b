"""Splits of nodes for training, validation and testing."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Split(NamedTuple):
    """Three masks, [N], bool, that have no node in common."""

    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor


def by_share(labels: np.ndarray, train: float, val: float, rng: np.random.Generator) -> Split:
    """Return a random split by shares of the labelled nodes; the remaining nodes are for testing.

    Args:
        labels: [N], int64; nodes with a negative label are in no part.
        train: Share of training nodes.
        val: Share of validation nodes.
        rng: The random number generator.
    """
    nodes = rng.permutation(np.flatnonzero(labels >= 0))
    ends = np.round(np.array([train, train + val]) * len(nodes)).astype(np.int64)
    return _masks(len(labels), *np.split(nodes, ends))


def by_class(labels: np.ndarray, per_class: int, val: float, test: float, rng: np.random.Generator) -> Split:
    """Return Planetoid's split: a few training nodes per class, and shares of all nodes for the rest.

    Args:
        labels: [N], int64; nodes with a negative label are in no part.
        per_class: Number of training nodes per class.
        val: Share of validation nodes.
        test: Share of test nodes.
        rng: The random number generator.
    """
    nodes = rng.permutation(np.flatnonzero(labels >= 0))
    own = labels[nodes]
    # How many nodes of the same class come before each node; the first ones of each class are for training.
    order = np.argsort(own, kind="stable")
    place = np.empty(len(nodes), dtype=np.int64)
    place[order] = np.arange(len(nodes)) - np.searchsorted(own[order], own[order], side="left")
    rest = nodes[place >= per_class]
    most_val, most_test = round(val * len(nodes)), round(test * len(nodes))
    return _masks(
        len(labels), nodes[place < per_class], rest[:most_val], rest[most_val : most_val + most_test]
    )


def _masks(num_nodes: int, *parts: np.ndarray) -> Split:
    masks = [torch.zeros(num_nodes, dtype=torch.bool, device="cpu") for _ in parts]
    for mask, part in zip(masks, parts, strict=True):
        mask[torch.from_numpy(part)] = True
    return Split(*masks)
