"""Rows of several matrices in files, some at a time, read while those before them are in use."""

from collections.abc import Generator, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

from onehop import native
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile
from onehop.ops.streaming.panels import Panels, most_bytes

Key = TypeVar("Key", bound=Hashable)

AHEAD = 2
"""So many blocks are in memory: the one in use, and the one that is read."""


def row_blocks(
    files: Mapping[Key, MatrixFile], rows: int, step: int, piece_bytes: int
) -> Generator[tuple[int, dict[Key, Tensor]]]:
    """Blocks of rows of all matrices: the first row's number, and of each matrix [step or fewer, columns].

    A block may be written to, and is gone when the next one is asked for. Close the generator where not all
    blocks are taken: a thread reads ahead.

    Args:
        files: The matrices, by names.
        rows: As many as each of them has, or fewer.
        step: Rows of a block.
        piece_bytes: For pieces that are being read, of all matrices together.

    Raises:
        FileFormatError: A file is truncated.
    """
    share = piece_bytes // max(len(files), 1)
    readers = {key: Panels(file, min(share, most_bytes(file))) for key, file in files.items()}
    rooms = [
        {key: native.empty((step, file.columns), WIDE[file.wide]) for key, file in files.items()}
        for _ in range(AHEAD)
    ]

    def read(row: int) -> dict[Key, Tensor]:
        found = {key: room[: min(step, rows - row)] for key, room in rooms[row // step % AHEAD].items()}
        for key, block in found.items():
            readers[key].load(0, block, row)
        return found

    with ThreadPoolExecutor(1, "onehop-rows", native.one_thread) as reader:
        coming = reader.submit(read, 0)
        for row in range(0, rows, step):
            found = coming.result()
            if row + step < rows:
                coming = reader.submit(read, row + step)
            yield row, found
