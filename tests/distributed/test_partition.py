"""How nodes are divided, and what is stored of it."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, ConfigurationError, FileFormatError, Graph
from onehop.datasets import planted
from onehop.distributed import DistributedGraph, partition, partition_types, save
from onehop.distributed.division import Division, ListDivision
from onehop.distributed.files import Folder
from onehop.distributed.part import ARRAYS
from onehop.distributed.refinement import cut_edges
from onehop.graph.stored import StoredGraph
from tests.distributed.cases import NODES, hostile


@pytest.fixture(scope="module")
def communities() -> Graph:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(40), 50))
    edge_index = planted.edges(rng, labels, num_pairs=20_000, exponent=0.0, same_class=0.9)
    return Graph.from_edge_index(edge_index, len(labels))


@pytest.mark.parametrize(
    ("method", "parts", "share"),
    [
        *(("greedy", parts, 0.35) for parts in (2, 3, 8)),
        *(("streamed", parts, 0.45) for parts in (2, 3, 8)),
        ("metis", 4, 0.35),
    ],
)
def test_fewer_edges_are_cut_than_by_chance(
    communities: Graph, method: str, parts: int, share: float
) -> None:
    if method == "metis":
        pytest.importorskip("pymetis")
    part = partition(communities, parts, method)
    assert part.dtype == torch.int32
    by_chance = communities.num_edges * (1 - 1 / parts)
    assert cut_edges(communities, part) < share * by_chance


def test_bad_arguments(communities: Graph) -> None:
    bipartite = Graph.from_edge_index(torch.tensor([[0], [1]]), size=(1, 2))
    with pytest.raises(ArgumentError, match="as many sources as destinations"):
        partition(bipartite, 2)
    with pytest.raises(ArgumentError, match="expected one of auto, metis, greedy"):
        partition(communities, 2, "fast")
    with pytest.raises(ArgumentError, match="one or more, got 0"):
        partition(communities, 0)


def test_metis_that_is_not_there(communities: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install 'onehop\\[partition\\]'"):
        partition(communities, 2, "metis")
    assert cut_edges(communities, partition(communities, 2)) > 0


def test_parts_hold_every_edge_once_and_halos_fit_each_other() -> None:
    edge_index = hostile()
    owner = partition(Graph.from_edge_index(edge_index, NODES), 3, "greedy")
    division = ListDivision(edge_index, owner, 3)
    parts = [division.part(rank) for rank in range(3)]
    numbers = torch.cat([p.edge_numbers for p in parts])
    assert numbers.dtype == torch.int32
    assert numbers.sort().values.tolist() == list(range(500))
    for part in parts:
        everywhere = torch.cat([part.owned_nodes, part.halo_nodes]).long()
        ends = torch.stack([everywhere[part.source], everywhere[part.target]])
        assert torch.equal(ends, edge_index[:, part.edge_numbers])
        assert not bool((part.source[part.target < part.inner_rows] >= len(part.owned_nodes)).any())
        for row in part.edge_numbers.split(part.rowptr.diff().tolist()):
            assert row.tolist() == sorted(row.tolist())
        for other in parts:
            sent = part.owned_nodes[part.send_rows].split(part.send_counts.tolist())[other.rank]
            received = other.halo_nodes.split(other.halo_counts.tolist())[part.rank]
            assert torch.equal(sent, received)
    crossing = owner[edge_index[0]] != owner[edge_index[1]]
    assert parts[0].cut_edges == int(crossing.sum())
    pairs = torch.stack([edge_index[0], owner[edge_index[1]].long()])[:, crossing].unique(dim=1)
    assert parts[0].cut_rows == pairs.size(1) == sum(len(p.halo_nodes) for p in parts)


def test_streamed_places_a_row_that_no_part_has_room_for() -> None:
    edge_index = torch.stack([torch.arange(50), torch.zeros(50, dtype=torch.int64)])
    part = partition(Graph.from_edge_index(edge_index), 5, "streamed")
    assert set(part.tolist()) == set(range(5))
    assert sorted(torch.bincount(part).tolist()) == [6, 11, 11, 11, 11]


def test_a_graph_on_disk_is_divided_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Graph.from_edge_index(hostile(), NODES)
    # Its edges are numbered as they are stored.
    edge_index = torch.stack(
        [whole.col.long(), torch.repeat_interleave(torch.arange(NODES), whole.in_degrees)]
    )
    stored = whole.save(tmp_path / "whole")
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (NODES, 3))
    x[:] = np.random.default_rng(0).standard_normal(x.shape)
    forbid = pytest.fail
    monkeypatch.setattr(StoredGraph, "load", lambda self: forbid("it was loaded as a whole"))
    meta = save(tmp_path / "parts", stored, parts=3, tensors={"x": x})
    owner = partition(Graph.from_edge_index(edge_index, NODES), 3, "streamed")
    division = ListDivision(edge_index, owner, 3)
    for rank in range(3):
        found = Folder.open(tmp_path / "parts", rank, 3)
        part, expected = found.part(), division.part(rank)
        for name in (*ARRAYS, "inner_rows", "cut_edges", "cut_rows", "num_edges"):
            assert torch.equal(*(torch.as_tensor(getattr(each, name)) for each in (part, expected))), name
        assert torch.equal(found.tensor("x", len(part.owned_nodes)), torch.from_numpy(x[part.owned_nodes]))
    again = save(tmp_path / "again", stored, NODES, parts=3)
    assert again["identity"] == meta["identity"]
    assert save(tmp_path / "other", stored, parts=2)["identity"] != meta["identity"]
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "meta.json",
        "part-00000",
        "part-00001",
        "part-00002",
    ]


def test_what_a_graph_on_disk_cannot(tmp_path: Path) -> None:
    stored = Graph.from_edge_index(hostile(), NODES).save(tmp_path / "whole")
    with pytest.raises(ArgumentError, match="'metis' needs the graph in memory; give 'streamed'"):
        save(tmp_path / "parts", stored, parts=2, method="metis")
    with pytest.raises(ArgumentError, match=f"has {NODES} nodes, not 5"):
        save(tmp_path / "parts", stored, 5, parts=2)
    col = np.lib.format.open_memmap(tmp_path / "whole" / "col.npy", "r+")
    col[7] = NODES
    col.flush()
    with pytest.raises(FileFormatError, match=r"a source is not in \[0, 60\)"):
        save(tmp_path / "parts", Graph.open(tmp_path / "whole"), parts=2)
    assert not list(tmp_path.glob("parts*"))


def test_a_part_goes_to_a_device_as_a_whole() -> None:
    edge_index = hostile()
    part = ListDivision(edge_index, partition(Graph.from_edge_index(edge_index, NODES), 2), 2).part(0)
    assert part.to(torch.device("cpu")) is part
    elsewhere = part.to(torch.device("meta"))
    assert all(getattr(elsewhere, name).is_meta for name in ARRAYS)
    assert elsewhere.inner_rows == part.inner_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "graph", hostile(), NODES, parts=2, method="greedy", tensors={"x": torch.ones(NODES, 3)})
    return tmp_path / "graph"


def test_a_process_reads_its_own_part_alone(folder: Path) -> None:
    for file in (folder / "part-00001").glob("*.npy"):
        file.unlink()
    part = Folder.open(folder, 0, 2).part()
    assert len(part.owned_nodes) == json.loads((folder / "meta.json").read_text())["owned_rows"][0]


@pytest.mark.parametrize("name", ["source", "halo_counts", "owned_nodes", "rowptr", "edge_numbers"])
def test_damaged_arrays(folder: Path, name: str) -> None:
    file = folder / "part-00000" / f"{name}.npy"
    stored = np.load(file)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(FileFormatError, match=r"expected a whole \.npy file"):
        Folder.open(folder, 0, 2).part()
    stored[0] = 10**6
    np.save(file, stored)
    with pytest.raises(FileFormatError, match="Copy or save the folder again"):
        Folder.open(folder, 0, 2).part()
    file.unlink()
    with pytest.raises(FileNotFoundError, match="copied as a whole"):
        Folder.open(folder, 0, 2).part()


@pytest.mark.parametrize("other", ["rank", "graph"])
def test_a_part_of_another_graph(folder: Path, tmp_path: Path, other: str) -> None:
    """Of the same lengths, with numbers in their bounds: an exchange would mix rows, or never end."""
    mirrored = NODES - 1 - hostile()
    save(tmp_path / "other", mirrored, NODES, parts=2, method="greedy")
    source = folder / "part-00001" if other == "rank" else tmp_path / "other" / "part-00000"
    for name in ARRAYS:
        shutil.copy(source / f"{name}.npy", folder / "part-00000" / f"{name}.npy")
    meta = json.loads((folder / "meta.json").read_text())
    given = meta if other == "rank" else json.loads((tmp_path / "other" / "meta.json").read_text())
    for name in ("inner_rows", "owned_rows"):
        meta[name][0] = given[name][1 if other == "rank" else 0]
    (folder / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(FileFormatError, match=r"part 0 of the graph of meta\.json, not that of another"):
        Folder.open(folder, 0, 2).part()


def test_folders_that_are_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"meta\.json cannot be used"):
        Folder.open(tmp_path, 0, 2)
    (folder / "meta.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"meta\.json cannot be used"):
        Folder.open(folder, 0, 2)


def test_tensor_with_other_rows(folder: Path) -> None:
    found = Folder.open(folder, 0, 2)
    with pytest.raises(FileFormatError, match="a row for each of 5 nodes"):
        found.tensor("x", 5)
    with pytest.raises(FileNotFoundError):
        found.tensor("y", 5)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_saving_refuses_and_leaves_nothing_half_done(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match="exists; remove it"):
        save(folder, hostile(), NODES, parts=2)
    with pytest.raises(ArgumentError, match="a row for each of 60 nodes"):
        save(tmp_path / "new", hostile(), NODES, parts=2, tensors={"x": torch.ones(3, 2)})
    monkeypatch.setattr(Division, "part", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "new", hostile(), NODES, parts=2)
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_without_a_process_group() -> None:
    with pytest.raises(onehop.ConfigurationError, match="start the program with torchrun"):
        DistributedGraph.from_edge_index(hostile(), NODES)


TYPED = {
    ("author", "writes", "paper"): hostile() % torch.tensor([[20], [NODES]]),
    ("paper", "cites", "paper"): hostile(),
}
KINDS = {"author": 20, "venue": 3, "paper": NODES}


@pytest.mark.parametrize("method", ["greedy", "streamed"])
def test_types_are_divided_as_one_graph_of_all_nodes(method: str) -> None:
    begins = {"author": 0, "venue": 20, "paper": 23}
    joined = torch.cat(
        [each + torch.tensor([[begins[j]], [begins[i]]]) for (j, _, i), each in TYPED.items()], 1
    )
    expected = partition(Graph.from_edge_index(joined, sum(KINDS.values())), 3, method)
    found = partition_types(TYPED, KINDS, 3, method)
    assert list(found) == list(KINDS)
    assert [len(each) for each in found.values()] == list(KINDS.values())
    assert torch.equal(torch.cat(list(found.values())), expected)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({("author", "paper"): hostile()}, "expected names like"),
        ({("author", "in", "journal"): hostile()}, "expected a number for 'journal'"),
    ],
    ids=["pair", "unknown type"],
)
def test_types_that_are_none(edges: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        partition_types(edges, KINDS, 2)


def test_a_number_of_another_type_is_out_of_range() -> None:
    # 20 would be the first venue of the joined graph.
    with pytest.raises(onehop.errors.IndexRangeError):
        partition_types({("author", "writes", "paper"): torch.tensor([[20], [0]])}, KINDS, 2)
