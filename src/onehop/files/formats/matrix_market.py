"""MatrixMarket files, sparse or dense, compressed with gzip if the name ends in ``.gz``.

Format: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market exchange formats", NIST 5935 (1996). SciPy's
reader is not used, because some damaged files make it crash.
"""

import re
from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError
from onehop.files.formats import number_lines
from onehop.files.formats.content import FileContent, as_float32, matrix_from
from onehop.files.formats.number_lines import Fields

_SPARSE, _DENSE = "coordinate", "array"
_VALUES = ("real", "double", "integer", "unsigned-integer")
# With real numbers, a Hermitian matrix is symmetric.
_SYMMETRIES = ("general", "symmetric", "hermitian", "skew-symmetric")
_SIZE = re.compile(r"\+?[0-9]{1,19}")


def read(path: Path) -> FileContent:
    """Read a matrix's graph; a pattern has no weights, and a symmetric matrix gives edges in both directions.

    Edges are in the order of the entries; the mirrored halves of symmetric matrices follow in the same order.
    A stored zero is an edge in a sparse matrix, but not in a dense matrix.

    Raises:
        FileFormatError: The file is not a matrix of real numbers, or is damaged.
    """
    layout, kind, symmetry = _banner(path)
    fields = Fields(2 if layout == _SPARSE else 0, 1 if kind in _VALUES else 0)
    sizes: list[int] | None = None
    parts = []
    found = 0
    for block, line in number_lines.blocks(path):
        if sizes is None:
            sizes, block = _sizes(path, block, line, 3 if layout == _SPARSE else 2)
        if sizes is not None:
            numbers, values = number_lines.parse(path, block, fields, line)
            count = len(numbers)
            if layout == _DENSE:
                kept = np.flatnonzero(values)
                numbers, values = kept[:, None] + found, values[kept]
            parts.append((numbers, as_float32(values)))
            found += count
    if sizes is None:
        raise FileFormatError(f"{path}: the line with the matrix's size is missing.")
    rows, columns, *stored = sizes
    if symmetry != "general" and rows != columns:
        raise FileFormatError(f"{path}: a {symmetry} matrix must be square, this one is {rows} x {columns}.")
    entries = stored[0] if stored else _dense_entries(rows, columns, symmetry)
    if found != entries:
        raise FileFormatError(
            f"{path}: expected {entries} entries, found {found}: the file is damaged or truncated."
        )
    numbers, values = number_lines.join(parts)
    row, column = (numbers - 1).T if layout == _SPARSE else _places(numbers[:, 0], rows, symmetry)
    weight = values[:, 0] if fields.values else None
    if symmetry != "general":
        twice = row != column
        if weight is not None:
            mirrored = -weight[twice] if symmetry == "skew-symmetric" else weight[twice]
            weight = np.concatenate([weight, mirrored])
        row, column = np.concatenate([row, column[twice]]), np.concatenate([column, row[twice]])
    return matrix_from(path, row, column, weight, (rows, columns))


def _banner(path: Path) -> tuple[str, str, str]:
    """Return the layout, the kind of values, and the symmetry."""
    with number_lines.opened(path) as file:
        words = file.readline(200).decode("utf-8", errors="replace").lower().split()
    if words[:2] != ["%%matrixmarket", "matrix"] or len(words) != 5:
        raise FileFormatError(
            f"{path}: expected a first line '%%MatrixMarket matrix coordinate real general' or similar."
        )
    layout, kind, symmetry = words[2:]
    if (
        layout not in (_SPARSE, _DENSE)
        or kind not in (_VALUES if layout == _DENSE else (*_VALUES, "pattern"))
        or symmetry not in _SYMMETRIES
    ):
        raise FileFormatError(
            f"{path}: expected a matrix of real numbers or a sparse pattern, got '{layout} {kind} "
            f"{symmetry}'. Write it with scipy.io.mmwrite, of complex numbers the real parts."
        )
    return layout, kind, symmetry


def _sizes(path: Path, block: bytes, first_line: int, count: int) -> tuple[list[int] | None, bytes]:
    """Return the numbers in the line of sizes, or None without the line; and the block without it."""
    line = number_lines.take_first(block)
    if line is None:
        return None, block
    index, raw, rest = line
    words = number_lines.fields_of(raw)
    if len(words) != count or not all(map(_SIZE.fullmatch, words)):
        names = "rows and columns" if count == 2 else "rows, columns and entries"
        raise number_lines.bad_line(path, first_line + index, raw, f"the numbers of {names}")
    return [int(word) for word in words], rest


def _dense_entries(rows: int, columns: int, symmetry: str) -> int:
    """Return the number of values that a dense matrix stores; for a symmetric matrix, the lower triangle."""
    if symmetry == "general":
        return rows * columns
    return rows * (rows - 1 if symmetry == "skew-symmetric" else rows + 1) // 2


def _places(positions: np.ndarray, rows: int, symmetry: str) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of values of a dense matrix, which are stored column by column."""
    if symmetry == "general":
        return positions % rows, positions // rows
    # Columns begin at the diagonal, or one row below it.
    below = 1 if symmetry == "skew-symmetric" else 0
    lengths = np.arange(rows, 0, -1) - below
    begins = np.cumsum(lengths) - lengths
    column = np.searchsorted(begins, positions, side="right") - 1
    return positions - begins[column] + column + below, column
