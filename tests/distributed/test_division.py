"""Divisions: what is stored once for all parts, and the rows that are dealt to them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.distributed import files, save
from onehop.distributed.division import Halos, ListDivision
from onehop.distributed.files import Folder, StoredDivision
from onehop.distributed.numbering import grouped
from onehop.distributed.part import ARRAYS
from onehop.graph.stored import StoredGraph
from tests.distributed.cases import NODES, hostile, random

PARTS = 5


def scattered() -> torch.Tensor:
    owner = (torch.arange(NODES) * 7 % PARTS).int()
    owner[owner == 3] = 1  # part 3 owns nothing
    return owner


@pytest.mark.parametrize("count", [0, 1, 40])
def test_grouped_numbers_ascend_inside_their_groups(count: int) -> None:
    keys = torch.randint(0, 6, (count,), generator=torch.Generator().manual_seed(0)).int()
    bounds, numbers = grouped(keys, 7)
    expected = [[at for at in range(count) if keys[at] == key] for key in range(7)]
    assert [each.tolist() for each in numbers.split(bounds.diff().tolist())] == expected


def naive_halo(rank: int) -> list[int]:
    owner, (source, target) = scattered(), hostile()
    found = {int(j) for j, i in zip(source, target, strict=True) if owner[i] == rank != owner[j]}
    return sorted(found, key=lambda node: (int(owner[node]), node))


@pytest.mark.parametrize("on_disk", [False, True])
def test_halos_are_those_of_a_loop(on_disk: bool, tmp_path: Path) -> None:
    owner = scattered()
    counts = [np.bincount(owner[naive_halo(rank)], minlength=PARTS) for rank in range(PARTS)]
    found = ((np.array(naive_halo(rank), dtype=np.int32), counts[rank]) for rank in range(PARTS))
    halos = Halos.collected(found, tmp_path / "halos" if on_disk else None)
    division = ListDivision(hostile(), owner, PARTS)
    assert halos.rows == sum(len(naive_halo(rank)) for rank in range(PARTS)) == division.cut_rows
    for rank in range(PARTS):
        assert halos.received(rank).tolist() == naive_halo(rank)
        assert halos.received_counts(rank).tolist() == counts[rank].tolist()
        sent = [[node for node in naive_halo(to) if owner[node] == rank] for to in range(PARTS)]
        assert [each.tolist() for each in halos.sent(rank)] == sent
        assert division.part(rank).halo_nodes.tolist() == naive_halo(rank)
    assert not on_disk or (tmp_path / "halos").stat().st_size == 4 * halos.rows


def test_halos_without_rows_leave_an_empty_file(tmp_path: Path) -> None:
    none = (np.empty(0, dtype=np.int32), np.zeros(PARTS, dtype=np.int64))
    halos = Halos.collected([none] * PARTS, tmp_path / "halos")
    assert halos.rows == (tmp_path / "halos").stat().st_size == 0
    assert halos.received(PARTS - 1).tolist() == []


def test_parts_do_not_depend_on_those_that_were_taken_before() -> None:
    division = ListDivision(hostile(), scattered(), PARTS)
    first = [division.part(rank) for rank in range(PARTS)]
    for rank in reversed(range(PARTS)):
        again = division.part(rank)
        assert all(torch.equal(getattr(again, name), getattr(first[rank], name)) for name in ARRAYS)


def small_blocks(size: int) -> Callable[..., Iterator]:
    plain = StoredGraph.blocks
    return lambda self: plain(self, size, size)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_edges_are_dealt_block_by_block(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Graph.from_edge_index(hostile(), NODES)
    stored = whole.save(tmp_path / "graph")
    targets = torch.arange(NODES).repeat_interleave(whole.in_degrees)
    expected = ListDivision(torch.stack([whole.col.long(), targets]), scattered(), PARTS)
    monkeypatch.setattr(StoredGraph, "blocks", small_blocks(size))
    (tmp_path / "scratch").mkdir()
    division = StoredDivision(stored, scattered(), PARTS, tmp_path / "scratch")
    for rank in range(PARTS):
        ours, theirs = division.part(rank), expected.part(rank)
        assert all(torch.equal(getattr(ours, name), getattr(theirs, name)) for name in ARRAYS)
        assert ours.inner_rows == theirs.inner_rows
    written = sum(file.stat().st_size for file in (tmp_path / "scratch").iterdir())
    assert written == 4 * (whole.num_edges + division.cut_rows)


TENSORS = {
    "x": random(NODES, 3),
    "y": torch.arange(NODES),
    "empty": torch.empty(NODES, 0),
    "deep": random(NODES, 2, 3, dtype=torch.float32),
    "columns": np.asfortranarray(random(NODES, 4).numpy()),
    "truth": torch.arange(NODES) % 2 == 0,
}


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 26])
@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_tensors(
    block_bytes: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", block_bytes)
    save(tmp_path / "parts", hostile(), NODES, parts=parts, method="greedy", tensors=TENSORS)
    for rank in range(parts):
        folder = Folder.open(tmp_path / "parts", rank, parts)
        owned = folder.part().owned_nodes
        for name, tensor in TENSORS.items():
            found = folder.tensor(name, len(owned))
            assert torch.equal(found, torch.as_tensor(tensor)[owned]), name


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_of_edges(on_disk: bool, tmp_path: Path) -> None:
    graph = Graph.from_edge_index(hostile(), NODES)
    # A graph on disk has its edges by row.
    edges = hostile()
    weight = random(graph.num_edges, 2)
    given = graph.save(tmp_path / "graph") if on_disk else hostile()
    of_given = weight[graph.perm] if on_disk else weight
    save(tmp_path / "parts", given, NODES, parts=3, method="streamed", edge_tensors={"w": of_given})
    expected = set(zip(*edges.tolist(), *weight.t().tolist(), strict=True))
    found = []
    for rank in range(3):
        folder = Folder.open(tmp_path / "parts", rank, 3)
        part = folder.part()
        rows = folder.edge_tensor("w", len(part.source))
        ends = (
            torch.cat([part.owned_nodes, part.halo_nodes])[part.source.long()],
            part.owned_nodes[part.target.long()],
        )
        found += zip(*(each.tolist() for each in ends), *rows.t().tolist(), strict=True)
    assert len(found) == graph.num_edges
    assert set(found) == expected


def test_rows_are_numbers(tmp_path: Path) -> None:
    words = np.array(["word"] * NODES, dtype=object)
    with pytest.raises(ArgumentError, match="expected numbers, got 'words' of Python objects"):
        save(tmp_path / "parts", hostile(), NODES, parts=2, tensors={"words": words})
    assert not list(tmp_path.iterdir())
