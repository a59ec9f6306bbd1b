"""A disk that is really full: results, graphs, plans and reports, on a file system of 64 KiB."""

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import onehop
from onehop import Graph, distributed, storage
from onehop.errors import StorageError
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.tuned import PlanCase, Tuned

FULL = r"No space left on device\)\. Make room or give another place"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system ({mounted.stderr.decode().strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    return Graph.from_edge_index(torch.randint(0, 300, (2, 5000), generator=generator), 300)


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes."""
    (disk / "other").write_bytes(bytes((64 << 10) - left))
    return disk / "other"


def test_a_result_for_which_there_is_no_room(graph: Graph, tmp_path: Path, disk: Path) -> None:
    x = np.random.default_rng(0).standard_normal((300, 63)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    stored = graph.save(tmp_path / "graph")
    (disk / "out.npy").write_text("earlier")
    for left in (0, 4096, 32 << 10):
        other = fill(disk, left + 4096)
        with pytest.raises(StorageError, match=FULL):
            onehop.aggregate(stored, tmp_path / "x.npy", out=disk / "out.npy", memory=40_000)
        assert sorted(each.name for each in disk.iterdir()) == ["other", "out.npy"]
        assert (disk / "out.npy").read_text() == "earlier"
        other.unlink()


def test_a_graph_for_which_there_is_no_room(graph: Graph, disk: Path) -> None:
    for left in (0, 4096, 16 << 10):
        other = fill(disk, left)
        with pytest.raises(StorageError, match=FULL):
            graph.save(disk / "graph")
        assert list(disk.iterdir()) == [other]
        other.unlink()
    assert torch.equal(graph.save(disk / "graph").load().col, graph.col)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_parts_for_which_there_is_no_room(graph: Graph, tmp_path: Path, disk: Path, where: str) -> None:
    given = graph.edge_index() if where == "memory" else graph.save(tmp_path / "graph")
    edges = torch.ones(graph.num_edges)
    for left in (0, 4096, 16 << 10, 40 << 10, 56 << 10):
        other = fill(disk, left)
        with pytest.raises(StorageError, match=FULL):
            distributed.save(disk / "parts", given, 300, parts=2, edge_tensors={"e": edges})
        assert list(disk.iterdir()) == [other]
        other.unlink()


def test_plans_for_which_there_is_no_room(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def entry(number: int) -> Tuned[CpuPlan]:
        case = PlanCase(f"{number}x{number} edges 9 degrees 1", "sum", False, number, "float32", 1, "none")
        return Tuned(case, CpuPlan(edges_per_item=77), 1.0, 1.0, 1.0)

    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(disk))
    tuned.forget()
    try:
        tuned.install([entry(1)])
        fill(disk, 8192)
        with caplog.at_level(logging.WARNING, "onehop"):
            tuned.install([entry(number) for number in range(2, 40)])
        assert "No space left on device): tuned plans last until this process ends" in caplog.text
        assert tuned.known(entry(39).case) == entry(39)  # in this process it is there
        tuned.forget()
        assert tuned.known(entry(1).case) == entry(1)
        assert tuned.known(entry(39).case) is None
        assert list(store.path().parent.glob("*.part")) == []
    finally:
        tuned.forget()


def test_a_report_for_which_there_is_no_room(disk: Path) -> None:
    storage.write_text("json", disk / "report.json", "earlier")
    with pytest.raises(StorageError, match=FULL):
        storage.write_text("json", disk / "report.json", "new" * 40_000)
    assert (disk / "report.json").read_text() == "earlier"
    assert [each.name for each in disk.iterdir()] == ["report.json"]


def test_a_run_for_which_room_ends_on_the_way_goes_on_when_there_is_some(
    graph: Graph, tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result's space is taken at once; the notes of how far it is come on top."""
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    x = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    stored = graph.save(tmp_path / "graph")
    exact = onehop.aggregate(graph, torch.from_numpy(x)).numpy()
    outcomes = []
    for pages in range(8):
        other = fill(disk, pages * 4096)
        try:
            onehop.aggregate(stored, tmp_path / "x.npy", out=disk / "out.npy", memory=40_000)
            outcomes.append("whole")
        except StorageError:
            outcomes.append("begun" if (disk / "out.npy.partial").exists() else "nothing")
            assert not (disk / "out.npy").exists()
        other.unlink()
        onehop.aggregate(stored, tmp_path / "x.npy", out=disk / "out.npy", memory=40_000)
        np.testing.assert_array_equal(np.load(disk / "out.npy"), exact)
        (disk / "out.npy").unlink()
        assert list(disk.iterdir()) == []
    # With more and more room: too little for the result, for it alone, for everything.
    assert list(dict.fromkeys(outcomes)) == ["nothing", "begun", "whole"]


@pytest.mark.parametrize("way", ["hops", "infer", "attention"])
def test_a_workflow_for_which_room_ends_goes_on_when_there_is_some(
    way: str, generator: torch.Generator, tmp_path: Path, disk: Path
) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    x = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    edge_index = torch.randint(0, 300, (2, 1000), generator=generator)
    stored = Graph.from_edge_index(edge_index, 300).save(tmp_path / "graph")
    torch.manual_seed(0)
    model = (nn.GAT if way == "attention" else nn.GCN)(3, 3, 2, 3).eval()

    def run(out: Path) -> np.ndarray:
        if way == "hops":
            onehop.hops(stored, tmp_path / "x.npy", 3, out, teleport=0.1)
        else:
            onehop.infer(model, stored, tmp_path / "x.npy", out)
        found: np.ndarray = np.load(out)
        return found

    exact, outcomes = run(tmp_path / "exact.npy"), []
    for left in range(0, 64 << 10, 8 << 10):
        other = fill(disk, left)
        try:
            run(disk / "out.npy")
            outcomes.append("whole")
        except StorageError:
            outcomes.append("full")
            assert not (disk / "out.npy").exists()
        other.unlink()
        np.testing.assert_array_equal(run(disk / "out.npy"), exact)
        (disk / "out.npy").unlink()
        assert list(disk.iterdir()) == []
    assert list(dict.fromkeys(outcomes)) == ["full", "whole"]
