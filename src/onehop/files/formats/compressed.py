"""Compressed sparse arrays as files hold them: checked before anything is done with them."""

from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError
from onehop.files.formats.content import as_float32


def outer_numbers(path: Path, pointer: np.ndarray, entries: int, outer_count: int) -> np.ndarray:
    """[entries], int64: the row of every entry of a CSR matrix, or the column of a CSC matrix.

    Args:
        path: For messages.
        pointer: [outer_count + 1]: where each row's entries begin.
        entries: Number of entries.
        outer_count: Number of rows.

    Raises:
        FileFormatError: ``pointer`` does not ascend from 0 to ``entries``.
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


def weights_from(path: Path, values: np.ndarray, entries: int) -> np.ndarray:
    """[entries], float32.

    Raises:
        FileFormatError: Not one real number an entry.
    """
    if values.shape != (entries,) or values.dtype.kind not in "biuf":
        raise FileFormatError(
            f"{path}: expected one real number for each of {entries} edges, got {values.dtype} of shape "
            f"{values.shape}."
        )
    return as_float32(values)
