"""MATLAB files with a sparse matrix ``A``: row = destination, column = source.

Files of the Facebook100 collection (A. Traud, P. Mucha, M. Porter, 2012) also have ``local_info``, a table
with one row a node and 0 for what is missing: student or faculty, gender, major, second major, dormitory,
year, school. As in "Large scale learning on non-homophilous graphs" (D. Lim et al., 2021), gender is the
label and the other columns are features, one-hot.
"""

import struct
import zlib
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse
import torch
from torch import Tensor

from onehop.errors import FileFormatError
from onehop.graph.formats.compressed import outer_numbers, weights_from
from onehop.graph.formats.content import FileContent, edges_from

_LABEL_COLUMN = 1
# A value that fewer nodes have gets no feature: of the high schools, most are one student's.
_LEAST_NODES_PER_FEATURE = 10
# What SciPy raises over damaged files.
_DAMAGE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    NotImplementedError,
    MemoryError,
    OSError,
    EOFError,
    struct.error,
    zlib.error,
    scipy.io.matlab.MatReadError,
)


def read(path: Path) -> FileContent:
    """The graph in ``A``; weights where its values are not all 1.

    Raises:
        FileFormatError: No sparse ``A``, a version of the format that SciPy does not read, or damaged.
    """
    try:
        names = {name: kind for name, _shape, kind in scipy.io.whosmat(path)}
        content = scipy.io.loadmat(path, variable_names=["A", "local_info"])
    except _DAMAGE as error:
        raise FileFormatError(
            f"{path}: not a whole MATLAB file of version 7 or older ({error}). Fetch it again, or save it "
            "with save('-v7')."
        ) from error
    matrix = content.get("A")
    if not scipy.sparse.issparse(matrix):
        raise FileFormatError(
            f"{path}: expected a sparse matrix named A; it has {', '.join(sorted(names)) or 'no variables'}."
        )
    csc = matrix if matrix.format == "csc" else matrix.tocsc()
    rows, columns = csc.shape
    indices = np.asarray(csc.indices)
    source = outer_numbers(path, np.asarray(csc.indptr), indices.size, columns)
    edge_index = edges_from(path, source, indices, (columns, rows))
    values = weights_from(path, np.asarray(csc.data), indices.size)
    weight = None if (values == 1).all() else torch.from_numpy(values)
    if "local_info" not in content:
        return FileContent(edge_index=edge_index, size=(columns, rows), weight=weight)
    x, y, num_classes = _local_info(path, content["local_info"], rows)
    return FileContent(
        edge_index=edge_index, size=(columns, rows), weight=weight, x=x, y=y, num_classes=num_classes
    )


def _local_info(path: Path, table: np.ndarray, num_nodes: int) -> tuple[Tensor, Tensor, int]:
    if table.ndim != 2 or table.shape[0] != num_nodes or table.shape[1] < 2 or table.dtype.kind not in "iuf":
        raise FileFormatError(
            f"{path}: expected local_info as {num_nodes} rows of two numbers or more, got {table.dtype} of "
            f"shape {table.shape}."
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
