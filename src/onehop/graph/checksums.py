"""Checksums of a stored graph's files: CRC-32 of each 4 MiB of numbers, in ``checksums.json``."""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError
from onehop.graph.pieces import PieceReader
from onehop.storage import writing

NAME = "checksums.json"
# Number of bytes that are read together and have one checksum.
BLOCK_BYTES = 4 << 20


class Checksums:
    """Computes checksums of a stream of bytes; ``blocks`` has the sums of whole blocks, then of the rest."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self._sum, self._held = 0, 0

    def add(self, data: memoryview) -> None:
        """Add the next bytes."""
        while len(data):
            part = data[: BLOCK_BYTES - self._held]
            self._sum, self._held = zlib.crc32(part, self._sum), self._held + len(part)
            if self._held == BLOCK_BYTES:
                self.finish()
            data = data[len(part) :]

    def finish(self) -> None:
        """End the last block, which may be incomplete."""
        if self._held:
            self.blocks.append(self._sum)
            self._sum, self._held = 0, 0


def write(folder: Path, files: Mapping[str, Sequence[int]]) -> None:
    """Write the checksums of files, by file name; raises a StorageError if the disk is full."""
    with writing("folder", folder):
        (folder / NAME).write_text(json.dumps(files))


def verify(folder: Path) -> None:
    """Read all files that have checksums once, and verify them.

    Raises a FileFormatError if the contents of a block differ from what was written, or if there are no
    checksums.
    """
    try:
        files = {str(name): list(sums) for name, sums in json.loads((folder / NAME).read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise FileFormatError(
            f"{folder / NAME}: expected the checksums of a graph that this release stored ({error}). Store "
            "the graph again."
        ) from error
    for name, sums in files.items():
        _verify_file(folder / name, sums)


def _verify_file(path: Path, sums: list[int]) -> None:
    if not path.is_file():
        raise FileFormatError(f"{path}: it has checksums, and is not there. Copy the folder as a whole.")
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        begin = file.tell()
    size = path.stat().st_size
    room = np.empty(BLOCK_BYTES, dtype=np.uint8)
    number = 0
    with PieceReader(path) as reader:
        for place in range(begin, size, BLOCK_BYTES):
            count = min(BLOCK_BYTES, size - place)
            reader.read(place, count, room, 0)
            if number >= len(sums) or zlib.crc32(room[:count].data) != sums[number]:
                raise FileFormatError(
                    f"{path}: bytes {place} to {place + count} are not those that were written. Copy or "
                    "store it again."
                )
            number += 1
    if number < len(sums):
        raise FileFormatError(f"{path}: truncated at byte {size}. Copy or store it again.")
