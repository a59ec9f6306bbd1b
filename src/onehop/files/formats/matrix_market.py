"""MatrixMarket files: row = destination, column = source, values = weights.

Format: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market exchange formats", NIST 5935 (1996). SciPy's
    reader is
not used: some damaged files make it crash.
"""

from pathlib import Path

import numpy as np
import torch

from onehop.errors import FileFormatError
from onehop.files.formats import number_lines
from onehop.files.formats.content import FileContent, check_count, edges_from
from onehop.graph.build import MOST_NODES

_FIELDS = ("real", "double", "integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
# The shortest entry is "1 1" and the end of its line.
_LEAST_BYTES_PER_ENTRY = 4


def read(path: Path) -> FileContent:
    """A sparse matrix: a pattern has no weights, a symmetric matrix gives edges in both directions.

    Entries come in the file's order; the mirrored halves of symmetric ones follow, in the same order.

    Raises:
        FileFormatError: Not a sparse matrix of real numbers, or damaged.
    """
    field, symmetry = _banner(path)
    columns = 2 if field == "pattern" else 3
    shape: tuple[int, int, int] | None = None
    parts = []
    for block, line in number_lines.blocks(path):
        if shape is None:
            shape, block = _shape(path, block, line)
        if shape is not None:
            parts.append(number_lines.parse(path, block, columns, line))
    if shape is None:
        raise FileFormatError(f"{path}: the line with the numbers of rows, columns and entries is missing.")
    row, column, weight = number_lines.join(parts)
    rows, cols, entries = shape
    if len(row) != entries:
        raise FileFormatError(
            f"{path}: expected {entries} entries, found {len(row)}: the file is damaged or truncated."
        )
    target, source = row - 1, column - 1
    if symmetry != "general":
        if rows != cols:
            raise FileFormatError(f"{path}: a {symmetry} matrix must be square, this one is {rows} x {cols}.")
        twice = row != column
        target, source = np.concatenate([target, source[twice]]), np.concatenate([source, target[twice]])
        if weight is not None:
            mirrored = weight[twice] if symmetry == "symmetric" else -weight[twice]
            weight = np.concatenate([weight, mirrored])
    return FileContent(
        edge_index=edges_from(path, source, target, (cols, rows)),
        size=(cols, rows),
        weight=None if weight is None else torch.from_numpy(weight),
    )


def _banner(path: Path) -> tuple[str, str]:
    """The kind of values, and the symmetry."""
    with path.open("rb") as file:
        words = file.readline(200).decode("utf-8", errors="replace").lower().split()
    if words[:2] != ["%%matrixmarket", "matrix"] or len(words) != 5:
        raise FileFormatError(
            f"{path}: expected a first line '%%MatrixMarket matrix coordinate real general' or similar."
        )
    layout, field, symmetry = words[2:]
    if layout != "coordinate" or field not in _FIELDS or symmetry not in _SYMMETRIES:
        raise FileFormatError(
            f"{path}: expected a sparse matrix of real numbers or a pattern, got '{layout} {field} "
            f"{symmetry}'. Write it with scipy.io.mmwrite from a sparse matrix of real numbers."
        )
    return field, symmetry


def _shape(path: Path, block: bytes, first_line: int) -> tuple[tuple[int, int, int] | None, bytes]:
    """Rows, columns and entries, None while there was no such line; and the block without that line."""
    lines = block.split(b"\n")
    for index, raw in enumerate(lines):
        words = number_lines.fields_of(raw)
        if not words:
            continue
        if len(words) != 3 or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
            raise number_lines.bad_line(
                path, first_line + index, raw, "the numbers of rows, columns and entries"
            )
        rows, columns, entries = (int(word) for word in words)
        if max(rows, columns) > MOST_NODES:
            raise FileFormatError(
                f"{path}: {rows} x {columns} is larger than the {MOST_NODES} that onehop can number."
            )
        if entries > path.stat().st_size // _LEAST_BYTES_PER_ENTRY + 1:
            raise FileFormatError(
                f"{path}: {entries} entries are more than the file can hold: it is truncated."
            )
        check_count(path, "sources", columns, 2 * entries)
        check_count(path, "destinations", rows, 2 * entries)
        lines[index] = b""
        return (rows, columns, entries), b"\n".join(lines)
    return None, block
