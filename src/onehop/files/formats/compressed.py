"""Compressed sparse matrices as stored in files; their arrays are checked before they are used."""

from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError
from onehop.files.formats.content import edges_from

# Rows, columns and values of entries, [E] each. Rows and columns have not been checked.
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]


def outer_numbers(path: Path, pointer: np.ndarray, entries: int, outer_count: int) -> np.ndarray:
    """Return [entries], int64: the row of every entry of a CSR matrix, or the column for a CSC matrix.

    Raises a FileFormatError if ``pointer``, [outer_count + 1], does not ascend from 0 to ``entries``.
    """
    if pointer.dtype.kind not in "iu" or pointer.shape != (outer_count + 1,):
        raise FileFormatError(
            f"{path}: expected {outer_count + 1} integers as row pointers, got {pointer.dtype} of shape "
            f"{pointer.shape}. The file is damaged; write it again."
        )
    wide = pointer.astype(np.int64)
    if wide[0] != 0 or wide[-1] != entries or (wide[1:] < wide[:-1]).any():
        raise FileFormatError(
            f"{path}: expected row pointers that ascend from 0 to the {entries} entries, got {wide[0]} to "
            f"{wide[-1]}. The file is damaged; write it again."
        )
    return np.repeat(np.arange(outer_count, dtype=np.int64), np.diff(wide))


def of_blocks(
    path: Path, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> Entries:
    """Return the entries of a BSR matrix, block by block; zeros only fill the blocks and are not entries.

    Args:
        path: The file, for error messages.
        data: [B, R, C]: the blocks.
        indices: [B]: the column of every block, counted in blocks.
        indptr: [rows / R + 1]: the positions at which the blocks of each row of blocks begin.
        shape: Numbers of rows and columns.

    Raises:
        FileFormatError: Blocks are not real numbers, or do not fit the shape.
    """
    _check_numbers(path, data, 3)
    rows, columns = shape
    _, height, width = data.shape
    if height == 0 or width == 0 or rows % height or columns % width:
        raise FileFormatError(
            f"{path}: blocks of {height} x {width} do not divide a matrix of {rows} x {columns}. The file is "
            "damaged; write it again."
        )
    in_blocks = (columns // width, rows // height)
    block_row = outer_numbers(path, indptr, len(data), in_blocks[1])
    column, row = edges_from(path, indices, block_row, in_blocks).numpy()
    block, below, right = np.nonzero(data)
    return row[block] * height + below, column[block] * width + right, data[block, below, right]


def of_diagonals(path: Path, data: np.ndarray, offsets: np.ndarray, shape: tuple[int, int]) -> Entries:
    """Return the entries of a DIA matrix, diagonal by diagonal; zeros fill diagonals and are not entries.

    Args:
        path: The file, for error messages.
        data: [D, L]: the diagonals; position j belongs to column j.
        offsets: [D]: the column of every diagonal's entry in row 0, negative below the main diagonal.
        shape: Numbers of rows and columns.

    Raises:
        FileFormatError: Diagonals are not real numbers, or their number differs from the number of offsets.
    """
    _check_numbers(path, data, 2)
    if offsets.dtype.kind not in "iu" or offsets.shape != (len(data),) or len(np.unique(offsets)) < len(data):
        raise FileFormatError(
            f"{path}: expected {len(data)} different integers as offsets, got {offsets.dtype} of shape "
            f"{offsets.shape}. The file is damaged; write it again."
        )
    rows, columns = shape
    inside = (offsets > -rows) & (offsets < columns)
    diagonals, begins = data[inside, :columns], offsets[inside].astype(np.int64)
    diagonal, column = np.nonzero(diagonals)
    row = column - begins[diagonal]
    kept = (row >= 0) & (row < rows)
    diagonal, column = diagonal[kept], column[kept]
    return row[kept], column, diagonals[diagonal, column]


def _check_numbers(path: Path, data: np.ndarray, dimensions: int) -> None:
    if data.ndim != dimensions or data.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{path}: expected real numbers in {dimensions} dimensions as data, got {data.dtype} of shape "
            f"{data.shape}. Save real numbers, as in matrix.real."
        )
