"""The rows of tensors, dealt to the folders of their owners in one pass over each tensor."""

from pathlib import Path

import numpy as np

from onehop.distributed.division import Division

# Bytes of a tensor that are in memory at a time.
_BLOCK_BYTES = 1 << 26


def deal(array: np.ndarray, division: Division, files: list[Path]) -> None:
    """Writes a .npy file of its rows for each part.

    Args:
        array: [N, ...], which may be memory-mapped: it is read in order, once.
        division: Says which rows are whose, and in which order.
        files: The file of each part, in a folder that exists.

    Raises:
        OSError: The disk is full.
    """
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    begins = []
    for rank in range(division.parts):
        shape = (len(division.owned(rank)), *array.shape[1:])
        description = np.lib.format.dtype_to_descr(array.dtype)
        with files[rank].open("wb") as file:
            header = {"descr": description, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            begins.append(file.tell())
    step = max(_BLOCK_BYTES // max(row_bytes, 1), 1)
    local = division.rows.local.numpy()
    for first in range(0, len(array), step):
        block = array[first : first + step]
        # A part's inner rows, and its others, have consecutive numbers among its rows.
        kinds = division.kinds(first, first + step)
        order = np.argsort(kinds, kind="stable")
        found, runs = np.unique(kinds[order], return_index=True)
        for kind, rows in zip(found.tolist(), np.split(order, runs[1:]), strict=True):
            rank = kind // 2
            with files[rank].open("r+b") as file:
                file.seek(begins[rank] + int(local[first + rows[0]]) * row_bytes)
                file.write(np.ascontiguousarray(block[rows]).data)
