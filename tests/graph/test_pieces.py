"""Pieces of files, past the page cache and through it."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from onehop import FileFormatError
from onehop.graph.pieces import BLOCK_BYTES, PieceReader, whole_blocks

SIZE = 5 * BLOCK_BYTES + 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    with PieceReader(path, direct=True) as reader:
        if reader.block == 1:
            pytest.skip("the file system of the temporary folder has no direct reads")
    return path


def room(blocks: int) -> np.ndarray:
    return whole_blocks(np.zeros((blocks + 1) * BLOCK_BYTES, dtype=np.uint8))


@pytest.mark.parametrize(
    ("place", "count"),
    [
        (0, BLOCK_BYTES),
        (128, 700),
        (BLOCK_BYTES - 4, 8),
        (BLOCK_BYTES + 4, 3 * BLOCK_BYTES),
        (3, 2 * BLOCK_BYTES - 3),
        (5 * BLOCK_BYTES, 100),
        (SIZE - 1, 1),
        (17, 0),
    ],
)
@pytest.mark.parametrize("direct", [True, False])
def test_places_that_are_no_blocks(file: Path, place: int, count: int, direct: bool) -> None:
    memory = room(7)
    with PieceReader(file, direct) as reader:
        at = 2 * reader.block + place % reader.block
        reader.read(place, count, memory, at)
        assert reader.block == (BLOCK_BYTES if direct else 1)
    assert memory[at : at + count].tobytes() == file.read_bytes()[place : place + count]
    # No more is written than what fills the blocks at both ends.
    assert not memory[: at - place % reader.block].any()
    assert not memory[-(-(at + count) // reader.block) * reader.block :].any()


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("size", [SIZE - 1, 4 * BLOCK_BYTES, BLOCK_BYTES + 1, 0])
def test_a_file_that_was_cut_off(file: Path, size: int, direct: bool) -> None:
    with PieceReader(file, direct) as reader:
        os.truncate(file, size)
        at = 300 % reader.block
        with pytest.raises(FileFormatError, match=rf"file: truncated at byte {max(size, 300 - at)}\."):
            reader.read(300, SIZE - 300, room(7), at)


def refuse_direct(patch: pytest.MonkeyPatch, name: str, code: int) -> None:
    """Lets direct reads end with an error: when the file is opened, or at the first one."""
    found = os.open

    def refusing(path: str, flags: int, *rest: int, **options: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(code, os.strerror(code))
        return found(path, flags, *rest, **options)

    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    patch.setattr(os, name, refusing if name == "open" else failing)


@pytest.mark.parametrize("name", ["open", "preadv"])
def test_a_file_system_that_refuses_direct_reads(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patch:
        refuse_direct(patch, name, errno.EINVAL)
        reader = PieceReader(file, direct=True)
    assert reader.block == 1
    memory = room(6)
    with reader:
        reader.read(5, SIZE - 5, memory, 11)
    assert memory[11 : SIZE + 6].tobytes() == file.read_bytes()[5:]


@pytest.mark.parametrize("name", ["open", "preadv"])
def test_other_errors_are_not_taken_for_a_refusal(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    refuse_direct(monkeypatch, name, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        PieceReader(file, direct=True)
