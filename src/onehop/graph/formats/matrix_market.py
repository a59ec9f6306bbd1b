"""MatrixMarket files: row = destination, column = source, values = weights."""

import io
from pathlib import Path

import numpy as np
import scipy.io
import torch

from onehop.errors import FileFormatError
from onehop.graph.formats.compressed import weights_from
from onehop.graph.formats.content import FileContent, check_count, edges_from

# The shortest entry is "1 1" and the end of its line.
_LEAST_BYTES_PER_ENTRY = 4
# What SciPy raises over damaged files.
_DAMAGE = (ValueError, OverflowError, TypeError, IndexError, MemoryError, OSError)


def read(path: Path) -> FileContent:
    """A sparse matrix: a pattern has no weights, a symmetric matrix gives edges in both directions.

    Raises:
        FileFormatError: Not a sparse matrix of real numbers, or damaged.
    """
    text = path.read_bytes()
    try:
        rows, columns, entries, layout, field, _symmetry = scipy.io.mminfo(io.BytesIO(text))
    except _DAMAGE as error:
        raise FileFormatError(f"{path}: no MatrixMarket header ({error}).") from error
    if layout != "coordinate" or field == "complex":
        raise FileFormatError(
            f"{path}: expected a sparse matrix of real numbers or a pattern, got a {field} {layout} matrix. "
            "Write it with scipy.io.mmwrite from a sparse matrix."
        )
    if entries > (len(text) + 1) // _LEAST_BYTES_PER_ENTRY:
        raise FileFormatError(
            f"{path}: {entries} entries are announced, more than the file can hold: it is truncated."
        )
    check_count(path, "sources", columns, 2 * entries)
    check_count(path, "destinations", rows, 2 * entries)
    try:
        matrix = scipy.io.mmread(io.BytesIO(text)).tocoo()
    except _DAMAGE as error:
        raise FileFormatError(
            f"{path}: not a whole MatrixMarket file ({error}). Fetch or write it again."
        ) from error
    size = (columns, rows)
    weight = None if field == "pattern" else weights_from(path, np.asarray(matrix.data), matrix.nnz)
    return FileContent(
        edge_index=edges_from(path, np.asarray(matrix.col), np.asarray(matrix.row), size),
        size=size,
        weight=None if weight is None else torch.from_numpy(weight),
    )
