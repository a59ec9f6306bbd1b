"""MATLAB files with a sparse matrix ``A``: row = destination, column = source.

Files of the Facebook100 collection (A. Traud, P. Mucha, M. Porter, 2012) also have ``local_info``, a table
with one row a node and 0 for what is missing: student or faculty, gender, major, second major, dormitory,
year, school. As in "Large scale learning on non-homophilous graphs" (D. Lim et al., 2021), gender is the
label and the other columns are features, one-hot.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.errors import FileFormatError
from onehop.files.formats.compressed import outer_numbers, weights_from
from onehop.files.formats.content import FileContent, edges_from
from onehop.files.formats.matlab import Sparse, read_arrays

_LABEL_COLUMN = 1
# A value that fewer nodes have gets no feature: of the high schools, most are one student's.
_LEAST_NODES_PER_FEATURE = 10


def read(path: Path) -> FileContent:
    """The graph in ``A``; weights where its values are not all 1.

    Raises:
        FileFormatError: No sparse ``A``, another version of the format than 5 to 7, or damaged.
    """
    content = read_arrays(path)
    matrix = content.get("A")
    if not isinstance(matrix, Sparse):
        raise FileFormatError(
            f"{path}: expected a sparse matrix of real numbers named A; it has "
            f"{', '.join(sorted(content)) or 'nothing'}."
        )
    rows, columns = matrix.shape
    indices, values = matrix.indices, matrix.data
    if matrix.indptr.size and matrix.indptr.dtype.kind == "i":
        # Files may keep room for more entries than there are; the last pointer says how many there are.
        indices, values = indices[: matrix.indptr[-1]], values[: matrix.indptr[-1]]
    source = outer_numbers(path, matrix.indptr, indices.size, columns)
    edge_index = edges_from(path, source, indices, (columns, rows))
    values = weights_from(path, values, indices.size)
    weight = None if (values == 1).all() else torch.from_numpy(values)
    if "local_info" not in content:
        return FileContent(edge_index=edge_index, size=(columns, rows), weight=weight)
    x, y, num_classes = _local_info(path, content["local_info"], rows)
    return FileContent(
        edge_index=edge_index, size=(columns, rows), weight=weight, x=x, y=y, num_classes=num_classes
    )


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
