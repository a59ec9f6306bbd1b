"""MATLAB files with a sparse matrix, up to version 7.

If a file has several matrices, the first existing one of these is read:

* ``A``. Files of the Facebook100 collection (A. Traud, P. Mucha, M. Porter, 2012) also have ``local_info``, a
  table with one row per node and 0 for missing values: student or faculty, gender, major, second major,
  dormitory, year, school. As in "Large scale learning on non-homophilous graphs" (D. Lim et al., 2021),
  gender is the label and the other columns are features, one-hot.
* ``Problem.A``, of the SuiteSparse Matrix Collection.
* The only sparse matrix, or the only square one, with any name, for example ``network`` in the data of
  DeepWalk (B. Perozzi et al., 2014). If every row of ``group`` has at most one 1 and otherwise 0, its column
  is the label.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, FileFormatError
from onehop.files.formats.compressed import outer_numbers
from onehop.files.formats.content import FileContent, matrix_from
from onehop.files.formats.matlab import Arrays, Sparse, read_arrays

_FIRST = ("A", "Problem.A")
_LABEL_COLUMN = 1
# A value that fewer nodes have gets no feature; most high schools have only one student.
_LEAST_NODES_PER_FEATURE = 10


def read(path: Path, key: str | None = None) -> FileContent:
    """Read the graph of a sparse matrix.

    Args:
        path: The file.
        key: Name of the matrix, ``Struct.field`` in a struct; None means the rule above.

    Raises:
        ArgumentError: There is no sparse matrix of this name.
        FileFormatError: The file has several sparse matrices or none, has another version of the format, or
            is damaged.
    """
    content = read_arrays(path)
    name = _chosen(path, content) if key is None else key
    matrix = content.get(name)
    if not isinstance(matrix, Sparse):
        named = f"a sparse matrix of real numbers named {name}; it has {_listed(content)}."
        if key is None:
            raise FileFormatError(f"{path}: expected {named} Save one, or choose another with key=NAME.")
        raise ArgumentError(f"key: expected {path} to have {named}")
    graph = _graph(path, matrix)
    num_nodes = matrix.shape[0]
    if name == "A" and "local_info" in content:
        x, y, num_classes = _local_info(path, content["local_info"], num_nodes)
        return replace(graph, x=x, y=y, num_classes=num_classes)
    labels, num_classes = _groups(path, content.get("group"), num_nodes)
    return replace(graph, y=labels, num_classes=num_classes)


def _chosen(path: Path, content: Arrays) -> str:
    """Return the name of the matrix to read if none is given."""
    shapes = {name: array.shape for name, array in content.items() if isinstance(array, Sparse)}
    square = [name for name, (rows, columns) in shapes.items() if rows == columns]
    found = [name for name in _FIRST if name in content][:1] or square or list(shapes) or [_FIRST[0]]
    if len(found) > 1:
        raise FileFormatError(
            f"{path}: expected one sparse matrix, or one named {' or '.join(_FIRST)}; it has "
            f"{_listed(found)}. Choose one, as in key={found[0]!r}."
        )
    return found[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)[:12]) or "nothing"


def _graph(path: Path, matrix: Sparse) -> FileContent:
    indices, values = matrix.indices, matrix.data
    if matrix.indptr.size and matrix.indptr.dtype.kind == "i":
        # Files may reserve space for more entries; the last pointer is the number of entries.
        indices, values = indices[: matrix.indptr[-1]], values[: matrix.indptr[-1]]
    column = outer_numbers(path, matrix.indptr, indices.size, matrix.shape[1])
    return matrix_from(path, indices, column, values, matrix.shape)


def _groups(path: Path, table: object, num_nodes: int) -> tuple[Tensor | None, int]:
    """Return labels and their number of classes from a table of one column per class; None if ambiguous."""
    if isinstance(table, Sparse):
        graph, shape = _graph(path, table), table.shape
        (label, node), ones = graph.edge_index.numpy(), graph.weight is None
    elif isinstance(table, np.ndarray):
        node, label = np.nonzero(table)
        shape, ones = table.shape, bool((table[node, label] == 1).all())
    else:
        return None, 0
    if shape[0] != num_nodes or shape[1] < 2 or not ones or len(np.unique(node)) != len(node):
        return None, 0
    y = np.full(num_nodes, -1)
    y[node] = label
    return torch.from_numpy(y), shape[1]


def _local_info(path: Path, table: object, num_nodes: int) -> tuple[Tensor, Tensor, int]:
    if not isinstance(table, np.ndarray) or table.shape[0] != num_nodes or table.shape[1] < 2:
        raise FileFormatError(
            f"{path}: expected local_info as a matrix of {num_nodes} rows and two columns or more; write it "
            "again."
        )
    labels = table[:, _LABEL_COLUMN]
    classes = np.unique(labels[labels != 0])
    y = np.where(labels == 0, -1, np.searchsorted(classes, labels))
    columns = []
    for column in np.delete(table, _LABEL_COLUMN, axis=1).T:
        values, counts = np.unique(column[column != 0], return_counts=True)
        columns.append(column[:, None] == values[counts >= _LEAST_NODES_PER_FEATURE])
    x = np.concatenate(columns, axis=1).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), len(classes)
