"""Reading of pieces of a file, without the system's page cache if the file system supports it."""

import errno
import mmap
import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

from onehop.errors import FileFormatError

# Alignment of offsets, addresses and lengths that O_DIRECT accepts on nearly every disk: 512 is the minimum,
# and few disks need more than 4096 (open(2)).
BLOCK_BYTES = 4096
# The page cache stores a file in chunks of up to this size, and drops only whole chunks.
_CACHED_TOGETHER = 4 << 20


class PieceReader:
    """Reads a file of which each piece is needed once.

    Through the page cache, the processor would copy each byte once more, and the memory of the process's
    control group would fill with data that are never read again. O_DIRECT avoids this. If the file system
    does not support it (for example some in memory or on a network), pieces are read through the page cache,
    and then dropped from it.

    Args:
        path: The file.
        direct: Whether to use O_DIRECT; for small pieces the system's readahead is faster.

    Attributes:
        block: The size of a block in bytes, 1 or ``BLOCK_BYTES``. Whole blocks of the file are read into
            whole blocks of memory.
    """

    def __init__(self, path: Path, direct: bool = False) -> None:
        file = _open_direct(path) if direct else None
        self.block = 1 if file is None else BLOCK_BYTES
        self._file = path.open("rb", buffering=0) if file is None else file

    def read(self, place: int, count: int, room: np.ndarray, at: int) -> None:
        """Read ``count`` bytes from ``place`` into ``room[at:]``, and the rest of the blocks at both ends.

        Args:
            place: The offset in the file, in bytes.
            count: The number of bytes.
            room: [bytes], uint8, beginning at a whole block of memory.
            at: The offset in ``room``; it must be the same within a block as for ``place``.

        Raises:
            FileFormatError: The file ends earlier.
        """
        lead = place % self.block
        begin, size = place - lead, lead + count
        blocks = -(-size // self.block) * self.block
        view = room[at - lead : at - lead + blocks].data
        done = 0
        while done < size:
            now = os.preadv(self._file.fileno(), [view[done:]], begin + done)
            done += now
            # A read that stops in the middle of a block has reached the end of the file; a direct read cannot
            # begin there.
            if now == 0 or (done < size and done % self.block):
                raise FileFormatError(
                    f"{self._file.name}: truncated at byte {begin + done}. Copy or write it again."
                )
        if self.block == 1:
            first = max(place - _CACHED_TOGETHER, 0)
            os.posix_fadvise(self._file.fileno(), first, place + count - first, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> "PieceReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def whole_blocks(room: np.ndarray) -> np.ndarray:
    """Return the whole blocks of some memory, [bytes], uint8, to read into."""
    begin = -room.ctypes.data % BLOCK_BYTES
    return room[begin : begin + (len(room) - begin) // BLOCK_BYTES * BLOCK_BYTES]


def _open_direct(path: Path) -> BinaryIO | None:
    """Return the file, opened for direct reads; None if the file system does not support them."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb", buffering=0, opener=_direct))
            # Some file systems fail only at the first read, or need larger blocks.
            os.preadv(file.fileno(), [mmap.mmap(-1, BLOCK_BYTES)], BLOCK_BYTES)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise
        stack.pop_all()
    return file


def _direct(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_DIRECT)
