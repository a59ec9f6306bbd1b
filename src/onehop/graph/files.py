"""Graphs from files.

==========================  ==================================================================================
name ends in                what it is
==========================  ==================================================================================
``.mtx``                    MatrixMarket, :mod:`onehop.graph.formats.matrix_market`
``.npz``                    a SciPy sparse matrix, or a graph with features and labels in one of two layouts,
                            :mod:`onehop.graph.formats.npz`
``.mat``                    MATLAB up to version 7 with a sparse ``A``, :mod:`onehop.graph.formats.mat`
``.txt``, ``.csv``,         one edge a line: source, destination and perhaps a weight,
``.tsv``, and ``.gz``       :mod:`onehop.graph.formats.edge_list`
of them
==========================  ==================================================================================

In matrices a row is a destination and a column a source, as in :meth:`onehop.Graph.from_scipy`.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from onehop.datasets import Dataset, splits, undirected
from onehop.errors import ArgumentError, FileFormatError
from onehop.graph.formats import edge_list, mat, matrix_market, npz
from onehop.graph.formats.content import FileContent

__all__ = ["FileContent", "dataset", "read"]

# Where a file has labels but no split: shares of training and validation nodes.
_TRAIN, _VAL = 0.6, 0.2

_READERS: dict[str, Callable[[Path], FileContent]] = {
    ".mtx": matrix_market.read,
    ".npz": npz.read,
    ".mat": mat.read,
    ".txt": edge_list.read,
    ".csv": edge_list.read,
    ".tsv": edge_list.read,
    ".txt.gz": edge_list.read,
    ".csv.gz": edge_list.read,
    ".tsv.gz": edge_list.read,
}


def read(path: str | os.PathLike[str]) -> FileContent:
    """Reads a file; edges are in the order in which they are stored.

    Nothing is unpickled, and every node number has been checked.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The file is truncated, malformed or of an unknown kind.
    """
    file = Path(path)
    ending = "".join(suffix.lower() for suffix in file.suffixes[-2:]) if file.suffix.lower() == ".gz" else ""
    reader = _READERS.get(ending or file.suffix.lower())
    if not file.exists():
        raise FileNotFoundError(f"{file}: there is no such file.")
    if reader is None or not file.is_file():
        raise FileFormatError(f"{file}: expected a file whose name ends in one of {', '.join(_READERS)}.")
    return reader(file)


def dataset(path: str | os.PathLike[str], split: int = 0, seed: int = 0) -> Dataset:
    """The file as a data set for node classification.

    Every edge goes both ways, each once; weights are left out. Of a file's splits one is chosen; a file with
    labels and no split gets a random one: 60 % of the labelled nodes for training, 20 % for validation, the
    rest for testing. Nodes without a label belong to no part.

    Args:
        path: The file.
        split: Which of the file's splits; without any only 0.
        seed: Of the random split.

    Raises:
        ArgumentError: The graph is bipartite, or has no such split.
        FileNotFoundError: There is no such file.
        FileFormatError: As in :func:`read`.
    """
    content = read(path)
    num_src, num_dst = content.size
    if num_src != num_dst:
        raise ArgumentError(
            f"path: {path} is bipartite ({num_src} sources, {num_dst} destinations); read() it instead."
        )
    stored = 1 if content.train_masks is None else content.train_masks.size(0)
    if not 0 <= split < stored:
        raise ArgumentError(f"split: {path} has {stored} (from 0), got {split}.")
    chosen: splits.Split | None = None
    if content.train_masks is not None and content.val_masks is not None and content.test_masks is not None:
        chosen = splits.Split(content.train_masks[split], content.val_masks[split], content.test_masks[split])
    elif content.y is not None:
        chosen = splits.by_share(content.y.numpy(), _TRAIN, _VAL, np.random.default_rng(seed))
    return Dataset(
        name=Path(path).name,
        edge_index=undirected(content.edge_index, num_dst),
        num_nodes=num_dst,
        x=content.x,
        y=content.y,
        num_classes=content.num_classes,
        **({} if chosen is None else chosen._asdict()),
    )
