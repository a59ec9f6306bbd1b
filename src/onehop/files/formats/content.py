"""The content of a graph file, and checks for all formats."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.errors import FileFormatError
from onehop.graph.build import MOST_NODES

# A graph may have this many nodes with any number of edges; larger graphs need at least one edge per 64
# nodes. Files that violate this contain identifiers instead of node numbers, and would need gigabytes for
# empty rows.
FREE_NODES = 1 << 24
NODES_PER_EDGE = 64


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileContent:
    """A graph from a file, and the file's information about its nodes.

    Attributes:
        edge_index: [2, E], int64: sources in row 0, destinations in row 1.
        size: (num_src, num_dst).
        weight: [E], float32; None if the file has no values, or if all values of its matrix are 1.
        x: [N, F], float32: features; None if there are none.
        y: [N], int64: classes from 0, -1 if unknown; None if there are none.
        num_classes: Number of classes; 0 without labels.
        train_masks: [S, N], bool: training nodes in each of S splits; None if there are none.
        val_masks: [S, N], bool: validation nodes.
        test_masks: [S, N], bool: test nodes.
    """

    edge_index: Tensor
    size: tuple[int, int]
    weight: Tensor | None = None
    x: Tensor | None = None
    y: Tensor | None = None
    num_classes: int = 0
    train_masks: Tensor | None = None
    val_masks: Tensor | None = None
    test_masks: Tensor | None = None


def matrix_from(
    path: Path, row: np.ndarray, column: np.ndarray, values: np.ndarray | None, shape: tuple[int, int]
) -> FileContent:
    """Return the graph of a matrix: a row is a destination and a column is a source.

    Takes the row and the column of every entry, [E] each, and the weights, [E], or None. Raises a
    FileFormatError if an entry is outside the matrix, or if values are not one real number per entry.
    """
    size = (shape[1], shape[0])
    edge_index = edges_from(path, column, row, size)
    weight = None if values is None else weights_from(path, values, len(row))
    if weight is not None and (weight == 1).all():
        weight = None
    return FileContent(
        edge_index=edge_index, size=size, weight=None if weight is None else torch.from_numpy(weight)
    )


def weights_from(path: Path, values: np.ndarray, entries: int) -> np.ndarray:
    """Return [entries], float32; raise a FileFormatError unless there is one real number per entry."""
    if values.shape != (entries,) or values.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{path}: expected one real number for each of {entries} edges, got {values.dtype} of shape "
            f"{values.shape}. Save real numbers, as in matrix.real."
        )
    return as_float32(values)


def edges_from(path: Path, source: np.ndarray, target: np.ndarray, size: tuple[int, int]) -> Tensor:
    """Return [2, E], int64: the edges, after checking that every node number is inside ``size``.

    Raises a FileFormatError if a node number is not an integer or is out of range, or if the size cannot be
    right.
    """
    if source.ndim != 1 or source.shape != target.shape:
        raise FileFormatError(
            f"{path}: expected as many sources as destinations, got arrays of shape {source.shape} and "
            f"{target.shape}."
        )
    for name, count in zip(("sources", "destinations"), size, strict=True):
        check_count(path, name, count, len(source))
    for name, numbers, count in (("source", source, size[0]), ("destination", target, size[1])):
        if numbers.dtype.kind not in "iu":
            raise FileFormatError(
                f"{path}: expected integers as node numbers, got {numbers.dtype} as {name}s."
            )
        wrong = (numbers < 0) | (numbers >= count)
        if wrong.any():
            edge = int(wrong.argmax())
            raise FileFormatError(
                f"{path}: {name} {numbers[edge]} of edge {edge} is not in [0, {count}), the graph's {name}s. "
                f"The file is damaged, or it counts nodes in another way; write it again."
            )
    edge_index = np.empty((2, len(source)), dtype=np.int64)
    edge_index[0], edge_index[1] = source, target
    return torch.from_numpy(edge_index)


def check_count(path: Path, name: str, count: int, edges: int) -> None:
    """Raise a FileFormatError for a negative or too large number of nodes, before memory is allocated."""
    if not 0 <= count <= MOST_NODES:
        raise FileFormatError(
            f"{path}: {count} {name} are not between 0 and {MOST_NODES}, the most onehop can number."
        )
    if count > max(FREE_NODES, NODES_PER_EDGE * edges):
        raise FileFormatError(
            f"{path}: {count} {name} for {edges} edges: the file seems to hold identifiers rather than node "
            "numbers. Number the nodes from 0 without gaps."
        )


def as_float32(values: np.ndarray) -> np.ndarray:
    """Return a copy in single precision; values that are too large become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def features_from(path: Path, values: np.ndarray, num_nodes: int) -> Tensor:
    """Return [N, F], float32; raise a FileFormatError unless it is a number table with one row per node."""
    if values.ndim != 2 or values.shape[0] != num_nodes or values.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{path}: expected features as {num_nodes} rows of numbers, got {values.dtype} of shape "
            f"{values.shape}."
        )
    return torch.from_numpy(as_float32(values))


def labels_from(path: Path, values: np.ndarray, num_nodes: int) -> tuple[Tensor, int]:
    """Return [N], int64, and the number of classes; -1 means that the class is unknown.

    Raises a FileFormatError unless there is one small integer per node.
    """
    labels = values.reshape(-1) if values.ndim == 2 and 1 in values.shape else values
    if labels.shape != (num_nodes,) or labels.dtype.kind not in "biu":
        raise FileFormatError(
            f"{path}: expected a label, an integer, for each of {num_nodes} nodes, got {values.dtype} of "
            f"shape {values.shape}."
        )
    lowest, highest = (int(labels.min()), int(labels.max())) if num_nodes else (0, -1)
    # With more classes than nodes, the column is something else, and would determine a model's size.
    if lowest < -1 or highest >= max(num_nodes, 1):
        raise FileFormatError(
            f"{path}: expected labels from 0 (-1 for unknown) below the {num_nodes} nodes, got {lowest} to "
            f"{highest}."
        )
    return torch.from_numpy(labels.astype(np.int64)), highest + 1


def masks_from(path: Path, values: np.ndarray, num_nodes: int) -> Tensor:
    """Return [S, N], bool, from one or several masks; raise a FileFormatError unless they are 0 or 1."""
    masks = np.atleast_2d(values)
    zeros_and_ones = masks.dtype.kind == "b" or (
        masks.dtype.kind in "iu" and bool(((masks == 0) | (masks == 1)).all())
    )
    if masks.ndim != 2 or masks.shape[0] == 0 or masks.shape[1] != num_nodes or not zeros_and_ones:
        raise FileFormatError(
            f"{path}: expected masks, true or false for each of {num_nodes} nodes, got {values.dtype} of "
            f"shape {values.shape}."
        )
    return torch.from_numpy(masks.astype(np.bool_))
