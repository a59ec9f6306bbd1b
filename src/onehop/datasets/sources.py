"""Data sets by a short name, as on the command line."""

import os
from pathlib import Path

import numpy as np

from onehop.datasets import splits
from onehop.datasets.dataset import Dataset, Progress
from onehop.datasets.external import ogb, pyg
from onehop.datasets.twins import names, twin
from onehop.errors import ArgumentError, integer
from onehop.files import read
from onehop.graph.edges import undirected

# Shares of training and validation nodes for a file with labels but no split.
_TRAIN, _VAL = 0.6, 0.2


def from_file(path: str | os.PathLike[str], split: int = 0, seed: int = 0, key: str | None = None) -> Dataset:
    """Load a file as a data set for node classification.

    Every edge is included once in each direction; weights are ignored. One of the file's splits is used. A
    file with labels but no split gets a random split: 60 % of the labelled nodes for training, 20 % for
    validation, the rest for testing. Nodes without a label are in no part.

    Args:
        path: The file.
        split: Number of the file's split to use; only 0 if the file has no splits.
        seed: Seed of the random split.
        key: Name of the matrix to read from a ``.mat`` file; see :func:`onehop.files.read`.

    Raises:
        ArgumentError: The graph is bipartite, or the split or matrix does not exist.
        FileNotFoundError: The file does not exist.
        FileFormatError: See :func:`onehop.files.read`.

    Examples:
        >>> import tempfile
        >>> from onehop.datasets import from_file
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     print("0,1", file=file, flush=True)
        ...     data = from_file(file.name)
        >>> data.edge_index.tolist()  # both directions of each edge
        [[0, 1], [1, 0]]
    """
    content = read(path, key)
    num_src, num_dst = content.size
    if num_src != num_dst:
        raise ArgumentError(
            f"path: {path} is bipartite ({num_src} sources, {num_dst} destinations); read it with "
            "onehop.files.read() instead."
        )
    stored = 1 if content.train_masks is None else content.train_masks.size(0)
    if not 0 <= split < stored:
        raise ArgumentError(f"split: {path} has {stored} (from 0), got {split}.")
    chosen: splits.Split | None = None
    if content.train_masks is not None and content.val_masks is not None and content.test_masks is not None:
        chosen = splits.Split(content.train_masks[split], content.val_masks[split], content.test_masks[split])
    elif content.y is not None:
        chosen = splits.by_share(
            content.y.numpy(), _TRAIN, _VAL, np.random.default_rng(integer("seed", seed))
        )
    return Dataset(
        name=Path(path).name,
        edge_index=undirected(content.edge_index, num_dst),
        num_nodes=num_dst,
        x=content.x,
        y=content.y,
        num_classes=content.num_classes,
        **({} if chosen is None else chosen._asdict()),
    )


# Prefixes of short names; any other text is the path of a file, see onehop.datasets.from_file.
PREFIXES = ("twin:", "pyg:", "ogb:")


def load(
    spec: str,
    seed: int = 0,
    scale: float = 1.0,
    progress: Progress | None = None,
    *,
    features: bool = True,
) -> Dataset:
    """Load the data set that ``spec`` names.

    Args:
        spec: ``twin:NAME``, ``pyg:NAME`` or ``ogb:NAME``.
        seed: Seed of a twin; see :func:`onehop.datasets.twin`.
        scale: Scale of a twin; see :func:`onehop.datasets.twin`.
        progress: Called with a twin's current step and its finished share.
        features: Whether a twin has features.

    Raises:
        ArgumentError: The prefix or the name is unknown.
        DatasetError: A package is not installed, or a download failed.

    Examples:
        >>> from onehop import datasets
        >>> datasets.load("twin:cora", seed=0)
        Dataset('twin:cora', num_nodes=2708, num_edges=10556, num_features=1433, num_classes=7)
    """
    kind, colon, name = spec.partition(":")
    match kind + colon:
        case "twin:":
            return twin(name, seed, scale, progress, features=features)
        case "pyg:":
            return pyg(name)
        case "ogb:":
            return ogb(name)
    raise ArgumentError(
        f"spec: expected twin:NAME (one of {', '.join(names())}), pyg:NAME or ogb:NAME, got {spec!r}. "
        f"A file is read by onehop.datasets.from_file(path)."
    )
