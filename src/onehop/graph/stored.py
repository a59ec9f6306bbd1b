"""A graph that stays on disk, in the folder that :mod:`onehop.graph.folder` describes."""

import os
from collections.abc import Iterable

from torch import Tensor

from onehop.graph import folder as folders
from onehop.graph.graph import StoredGraph as StoredGraph


def write(
    folder: str | os.PathLike[str], num_src: int, blocks: Iterable[tuple[Tensor, Tensor]]
) -> StoredGraph:
    """Store a graph that is given in blocks of rows; only one block at a time is in memory.

    The folder appears only when it is complete.

    Args:
        folder: The path; it must not exist.
        num_src: Number of sources.
        blocks: Pairs for consecutive destinations: the number of edges of each destination, [rows], and their
            sources, [edges]; integers on the CPU.

    Raises:
        ArgumentError: The folder exists, or a block contradicts itself.
        IndexRangeError: A source is negative or too large.
        StorageError: The disk is full, or not writable.
    """
    folders.write(folder, num_src, blocks)
    return StoredGraph.open(folder)
