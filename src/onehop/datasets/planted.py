"""Planted labels: edges and features carry information about them, so that training on a twin is useful."""

import numpy as np
import torch
from torch import Tensor

from onehop.datasets.dataset import Dataset, Progress
from onehop.datasets.random_graphs import both_directions, distinct_pairs, pick
from onehop.datasets.splits import Split

_ROWS_AT_ONCE = 65_536


def classes(rng: np.random.Generator, num_nodes: int, num_classes: int, skew: float) -> np.ndarray:
    """Return [N], int64: a class for every node; class sizes are proportional to r ** -skew for rank r.

    Ranks count from 1. Every class has at least one node if there are at least as many nodes as classes.
    """
    share = np.arange(1, num_classes + 1, dtype=np.float64) ** -skew
    ends = np.round(np.cumsum(share) / share.sum() * num_nodes).astype(np.int64)
    least = np.minimum(np.arange(1, num_classes + 1), num_nodes)
    ends = np.maximum(ends, least)
    sizes = np.diff(ends, prepend=0)
    return rng.permutation(np.repeat(np.arange(num_classes), sizes)[:num_nodes])


def edges(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_pairs: int,
    *,
    exponent: float,
    same_class: float,
    progress: Progress | None = None,
) -> Tensor:
    """Return both directions of ``num_pairs`` pairs of nodes: a degree-corrected planted partition.

    The first end of a pair is drawn by weight, ``rank ** -exponent``, with randomly assigned ranks. With
    probability ``same_class``, the second end is drawn by weight from the same class, otherwise from all
    nodes. Model: B. Karrer, M. Newman, "Stochastic blockmodels and community structure in networks", Physical
    Review E 83 (2011).

    Returns:
        [2, 2 * num_pairs], int64, ordered by source, then by destination.
    """
    num_nodes = len(labels)
    by_class = np.argsort(labels, kind="stable")
    weights = (rng.permutation(num_nodes) + 1.0) ** -exponent
    cumulative = np.cumsum(weights)
    # Begin and end of each class's weights in the cumulative sum of all weights.
    last = np.cumsum(np.bincount(labels)) - 1
    ends = cumulative[last]
    begins = np.concatenate([[0.0], ends[:-1]])
    class_of = labels[by_class]

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        first = pick(rng.random(count) * cumulative[-1], cumulative)
        own = class_of[first]
        inside = rng.random(count) < same_class
        low = np.where(inside, begins[own], 0.0)
        high = np.where(inside, ends[own], cumulative[-1])
        return first, pick(low + rng.random(count) * (high - low), cumulative)

    first, second = distinct_pairs(draw, num_nodes, num_pairs, rng, progress)
    return both_directions(by_class[first], by_class[second], num_nodes)


def vectors(rng: np.random.Generator, labels: np.ndarray, width: int, signal: float) -> np.ndarray:
    """Return [N, width], float32: standard normal noise around a class centre of length ``signal``."""
    centres = rng.standard_normal((labels.max() + 1, width)).astype(np.float32)
    centres *= signal / np.linalg.norm(centres, axis=1, keepdims=True)
    x = rng.standard_normal((len(labels), width), dtype=np.float32)
    # Piece by piece, because the centres of all nodes would be as large as the result.
    for begin in range(0, len(labels), _ROWS_AT_ONCE):
        x[begin : begin + _ROWS_AT_ONCE] += centres[labels[begin : begin + _ROWS_AT_ONCE]]
    return x


def words(
    rng: np.random.Generator, labels: np.ndarray, width: int, mean_words: float, on_topic: float
) -> np.ndarray:
    """Return [N, width], float32, zeros and ones: about ``mean_words`` of ``width`` words per node.

    Words are drawn by Zipf's law: with probability ``on_topic`` from the part of the vocabulary that belongs
    to the node's class, otherwise from the whole vocabulary.
    """
    num_classes = int(labels.max()) + 1
    node = np.repeat(np.arange(len(labels)), 1 + rng.poisson(mean_words - 1, len(labels)))
    cumulative = np.cumsum(1.0 / rng.permutation(np.arange(1.0, width + 1)))
    part = np.concatenate([[0.0], cumulative[(np.arange(1, num_classes + 1) * width) // num_classes - 1]])
    own = labels[node]
    inside = rng.random(len(node)) < on_topic
    low = np.where(inside, part[own], 0.0)
    high = np.where(inside, part[own + 1], cumulative[-1])
    word = pick(low + rng.random(len(node)) * (high - low), cumulative)
    x = np.zeros((len(labels), width), dtype=np.float32)
    x[node, word] = 1.0
    return x


def mislabel(rng: np.random.Generator, labels: np.ndarray, share: float) -> np.ndarray:
    """Return the labels with ``share`` of them replaced by other nodes' labels, which no model can know."""
    wrong = rng.random(len(labels)) < share
    return np.where(wrong, rng.permutation(labels), labels)


def dataset(
    name: str, edge_index: Tensor, x: np.ndarray | None, y: np.ndarray, num_classes: int, split: Split
) -> Dataset:
    """Return the data set of these edges, features [N, F] and labels [N]; ``x`` None means no features."""
    return Dataset(
        name=name,
        edge_index=edge_index,
        num_nodes=len(y),
        x=None if x is None else torch.from_numpy(x),
        y=torch.from_numpy(y),
        num_classes=num_classes,
        **split._asdict(),
    )
