"""Checksums of the blocks of stored graphs."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import FileFormatError, Graph
from onehop.graph import checksums
from onehop.graph.stored import StoredGraph, write


@pytest.fixture(params=[64, 1000, 4 << 20])
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredGraph:
    """In blocks of a few numbers, of some hundred, and in one."""
    monkeypatch.setattr(checksums, "BLOCK_BYTES", request.param)
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(0, 90, (2, 1500), generator=generator), 90).save(
        tmp_path / "g"
    )


def test_what_was_written_is_confirmed(stored: StoredGraph) -> None:
    stored.verify()
    sums = json.loads((stored.folder / "checksums.json").read_text())
    data = np.load(stored.col_file).tobytes()
    size = checksums.BLOCK_BYTES
    assert sums["col.npy"] == [zlib.crc32(data[k : k + size]) for k in range(0, len(data), size)]
    assert set(sums) == {"rowptr.npy", "col.npy"}


def test_a_graph_written_in_blocks_of_rows_has_the_same(stored: StoredGraph, tmp_path: Path) -> None:
    blocks = ((counts, sources) for _, counts, sources in stored.blocks(7, 50))
    again = write(tmp_path / "again", stored.num_src, blocks)
    again.verify()
    names = [graph.folder / "checksums.json" for graph in (stored, again)]
    assert names[0].read_text() == names[1].read_text()


@pytest.mark.parametrize("name", ["col.npy", "rowptr.npy"])
@pytest.mark.parametrize("place", [128, 300, -1])
def test_a_bit_that_changed_is_found(stored: StoredGraph, name: str, place: int) -> None:
    path = stored.folder / name
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    at = place % len(data)
    with pytest.raises(FileFormatError, match=rf"{name}: bytes \d+ to \d+ are not those that were") as told:
        stored.verify()
    begin, end = (int(word) for word in str(told.value).split("bytes ")[1].split(" are")[0].split(" to "))
    assert begin <= at < end <= begin + checksums.BLOCK_BYTES


def test_files_that_are_shorter_longer_or_gone(stored: StoredGraph) -> None:
    data = stored.col_file.read_bytes()
    # Blocks that are cut off as wholes leave the others as they were.
    rest = (len(data) - 128 - 1) // checksums.BLOCK_BYTES * checksums.BLOCK_BYTES
    for wrong, message in (
        (data[: 128 + rest], "truncated at byte"),
        (data + bytes(4), "are not those"),
    ):
        stored.col_file.write_bytes(wrong)
        with pytest.raises(FileFormatError, match=message):
            stored.verify()
    stored.col_file.unlink()
    with pytest.raises(FileFormatError, match="is not there"):
        stored.verify()


@pytest.mark.parametrize("text", [None, "[", "[1]", '{"col.npy": 3}'])
def test_a_graph_without_checksums_is_a_sentence(stored: StoredGraph, text: str | None) -> None:
    path = stored.folder / "checksums.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(FileFormatError, match="Store the graph again"):
        stored.verify()
    assert stored.load().num_edges == 1500
