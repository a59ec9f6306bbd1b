"""Storing a graph where the disk is full or read-only, where the writer is killed, and by several at once."""

import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from onehop import ArgumentError, Graph
from onehop.errors import StorageError
from onehop.graph import folder as folders, stored
from tests.processes import ended, forked

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    return Graph.from_edge_index(torch.randint(0, 300, (2, 5000), generator=generator), 300)


def test_a_full_disk_is_a_sentence_and_leaves_nothing(graph: Graph, tmp_path: Path) -> None:
    def run() -> None:
        for most in (100, 2_000, 10_000):  # bytes of a file: in the header, in rowptr, in col
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            told = r"folder: cannot write \d+ bytes to .*npy \(File too large\)\. Make room or give another"
            with pytest.raises(StorageError, match=told):
                graph.save(tmp_path / "graph")

    assert ended(forked(run)) == 0
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_are_sentences(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder, message in (
        (tmp_path / "file" / "graph", "Not a directory"),
        (tmp_path / ("n" * 300), "name too long"),
        (Path("/proc/graph"), r"folder: cannot write /proc/graph"),
    ):
        with pytest.raises(StorageError, match=message):
            graph.save(folder)


def test_a_fault_of_the_blocks_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    def blocks():
        yield torch.tensor([1]), torch.tensor([0])
        raise FileNotFoundError("the edges are gone")

    with pytest.raises(FileNotFoundError, match="the edges are gone") as told:
        stored.write(tmp_path / "graph", 3, blocks())
    assert not isinstance(told.value, StorageError)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_folder_of_that_name(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> None:
        monkeypatch.setattr(folders, "_appear", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        graph.save(tmp_path / "graph")

    assert ended(forked(run)) == -signal.SIGKILL
    assert not (tmp_path / "graph").exists()
    assert torch.equal(graph.save(tmp_path / "graph").load().col, graph.col)


def test_of_several_writers_one_comes_first_and_its_graph_is_whole(graph: Graph, tmp_path: Path) -> None:
    goal, children = tmp_path / "graph", []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                graph.save(goal)
                code = 0
            except ArgumentError:
                code = 3
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 3, 3, 3, 3, 3]
    again = Graph.open(goal).load()
    assert torch.equal(again.col, graph.col)
    assert torch.equal(again.rowptr, graph.rowptr)
    assert [each.name for each in tmp_path.iterdir()] == ["graph"]


def test_who_comes_second_is_told(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appear = folders._appear

    def late(beside: Path, goal: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(folders, "_appear", appear)
            graph.save(goal)
        appear(beside, goal)

    monkeypatch.setattr(folders, "_appear", late)
    with pytest.raises(ArgumentError, match="was created by another process in the meantime"):
        graph.save(tmp_path / "graph")
    assert [each.name for each in tmp_path.iterdir()] == ["graph"]
