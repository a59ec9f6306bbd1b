"""Aggregation of files, tile by tile, against the same in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onehop
from onehop import ArgumentError, FileFormatError, Graph
from onehop.errors import StorageError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming import progress
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.tiles import tiling
from tests.ops.hostile_graphs import HOSTILE, graph_of
from tests.pairs import pairwise
from tests.processes import Stop

NODES, EDGES = 300, 4000


@pytest.fixture
def graph() -> Graph:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NODES - 20, (2, EDGES), generator=generator)
    edge_index[1, :900] = 5
    return Graph.from_edge_index(edge_index, NODES)


def features(path: Path, rows: int, width: int, order: str = "C", dtype: str = "float32") -> torch.Tensor:
    x = np.random.default_rng(1).standard_normal((rows, width)).astype(dtype)
    np.save(path, x if order == "C" else np.asfortranarray(x))
    return torch.from_numpy(x)


# Panels of a few columns, tiles of some hundred edges: bytes.
SMALL = 40_000


@pairwise(width=[1, 3, 17, 63], reduce=["sum", "mean", "max", "min"], order=["C", "F"])
def test_same_bits_as_in_memory(
    graph: Graph, stored: StoredGraph, tmp_path: Path, width: int, reduce: str, order: str
) -> None:
    x = features(tmp_path / "x.npy", NODES, width, order)
    x_file = MatrixFile.open("x", tmp_path / "x.npy")
    plan = tiling(stored, x_file, False, SMALL)
    assert len(list(stored.row_blocks(plan.rows, plan.edges))) > 2
    if width > 17:
        assert plan.columns < width
    path = onehop.aggregate(stored, tmp_path / "x.npy", reduce=reduce, out=tmp_path / "out.npy", memory=SMALL)
    # One thread, or the plan in memory would cut the hub.
    exact = onehop.aggregate(graph, x, reduce=reduce)
    np.testing.assert_array_equal(np.load(path), exact.numpy())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["graph", "out.npy", "x.npy"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_in_the_stored_order(graph: Graph, stored: StoredGraph, tmp_path: Path, dtype: str) -> None:
    x = features(tmp_path / "x.npy", NODES, 9, dtype=dtype)
    weight = torch.randn(EDGES, generator=torch.Generator().manual_seed(2)).to(x.dtype)
    assert graph.perm is not None
    np.save(tmp_path / "w.npy", weight[graph.perm.long()].numpy())
    x_map = np.load(tmp_path / "x.npy", mmap_mode="r")
    path = onehop.aggregate(stored, x_map, tmp_path / "w.npy", out=tmp_path / "out.npy", memory=SMALL)
    np.testing.assert_array_equal(np.load(path), onehop.aggregate(graph, x, weight).numpy())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs(name: str, tmp_path: Path) -> None:
    graph = graph_of(name)
    x = features(tmp_path / "x.npy", graph.num_src, 4)
    x[graph.num_src // 2 : graph.num_src // 2 + 1] = float("nan")
    np.save(tmp_path / "x.npy", x.numpy())
    graph.save(tmp_path / "graph")
    for reduce in ("sum", "max"):
        stored = Graph.open(tmp_path / "graph")
        path = onehop.aggregate(
            stored, tmp_path / "x.npy", reduce=reduce, out=tmp_path / "o.npy", memory=20_000
        )
        np.testing.assert_array_equal(np.load(path), onehop.aggregate(graph, x, reduce=reduce).numpy())
    again = stored.load()
    assert torch.equal(again.rowptr, graph.rowptr)
    assert torch.equal(again.col, graph.col)


@pytest.mark.parametrize(
    ("memory_columns", "expected"),
    [(5.9, 5), (9.5, 8), (12.7, 8), (16.2, 16), (19.9, 16), (40, 32), (70, 63)],
)
def test_panels_are_alike_and_their_rows_whole_lines(
    tmp_path: Path, memory_columns: float, expected: int
) -> None:
    rows = 20_000
    features(tmp_path / "x.npy", rows, 63, "F")
    stored = Graph.from_edge_index(torch.tensor([[0], [0]]), rows).save(tmp_path / "graph")
    memory = int(memory_columns * rows * 4 / 0.85)
    plan = tiling(stored, MatrixFile.open("x", tmp_path / "x.npy"), False, memory)
    assert plan.columns == expected
    total = plan.columns * rows * 4 + plan.piece_bytes + plan.waiting_bytes
    assert total + 24 * plan.edges + (2 * plan.columns * 4 + 72) * plan.rows <= memory


@pytest.mark.parametrize("memory", [SMALL, None], ids=["budget", "whatever-is-free"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_interrupted_run_goes_on(
    graph: Graph,
    stored: StoredGraph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    memory: int | None,
) -> None:
    x = features(tmp_path / "x.npy", NODES, 63, order)
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    arguments = {"out": tmp_path / "out.npy", "memory": memory}
    free = iter((SMALL, SMALL + 9_000, SMALL - 5_000))
    monkeypatch.setattr("onehop.ops.streaming.budget.default_bytes", lambda: next(free))
    written = []
    put = MatrixFile.put

    def until_the_plug_is_pulled(self, file, row, first, block):
        if len(written) == stop:
            raise Stop
        written.append((row, first))
        put(self, file, row, first, block)

    monkeypatch.setattr(MatrixFile, "put", until_the_plug_is_pulled)
    for stop in (9, 25):
        with pytest.raises(Stop):
            onehop.aggregate(stored, tmp_path / "x.npy", **arguments)
        assert not (tmp_path / "out.npy").exists()
        note = json.loads((tmp_path / "out.npy.progress.json").read_text())
        assert note["done"] == stop
    stop = None
    onehop.aggregate(stored, tmp_path / "x.npy", **arguments)
    assert len(written) == len(set(written))  # nothing twice
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), onehop.aggregate(graph, x).numpy())


@pytest.mark.parametrize(
    "other", [{"reduce": "max"}, {"src_scale": torch.full((NODES,), 2.0)}], ids=["reduce", "scale"]
)
def test_a_run_of_something_else_is_not_gone_on_from(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    x = features(tmp_path / "x.npy", NODES, 63)
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    options: dict[str, Any] = {"out": tmp_path / "out.npy", "memory": SMALL}
    with monkeypatch.context() as patch:
        patch.setattr(progress.Unfinished, "finish", lambda self: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            onehop.aggregate(stored, tmp_path / "x.npy", src_scale=torch.ones(NODES), **options)
    path = onehop.aggregate(stored, tmp_path / "x.npy", **other, **options)
    np.testing.assert_array_equal(np.load(path), onehop.aggregate(graph, x, **other).numpy())


def test_damaged_files_leave_the_earlier_result(graph: Graph, stored: StoredGraph, tmp_path: Path) -> None:
    features(tmp_path / "x.npy", NODES, 8)
    out = onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    before = out.read_bytes()
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-5])
    with pytest.raises(FileFormatError, match=r"short\.npy: truncated: 9723 bytes of 9728"):
        onehop.aggregate(stored, tmp_path / "short.npy", out=out, memory=SMALL)
    # A source out of range is met in the middle of the run.
    col = np.load(stored.col_file)
    col[-1] = NODES
    np.save(stored.col_file, col)
    with pytest.raises(FileFormatError, match=r"a source is not in \[0, 300\)"):
        onehop.aggregate(Graph.open(stored.folder), tmp_path / "x.npy", out=out, memory=SMALL)
    rowptr = np.load(stored.rowptr_file)
    rowptr[7] = EDGES + 1
    np.save(stored.rowptr_file, rowptr)
    with pytest.raises(FileFormatError, match="entries that ascend to 4000"):
        onehop.aggregate(Graph.open(stored.folder), tmp_path / "x.npy", out=out, memory=SMALL)
    stored.col_file.write_bytes(stored.col_file.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match="Copy or"):
        Graph.open(stored.folder)
    assert out.read_bytes() == before


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import os, onehop\nos.chdir({str(folder)!r})\n{code}"],
        # One heap for all threads, so that what one gave back is of use to the others.
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_fills_up_on_the_way(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features(tmp_path / "x.npy", NODES, 63)
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError(28, "No space left on device")

        patch.setattr(os, "pwritev", full)
        with pytest.raises(StorageError, match="No space left on device"):
            onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    assert not (tmp_path / "out.npy").exists()
    onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)


def test_three_times_the_memory_that_the_process_may_have(tmp_path: Path) -> None:
    """The process may take 64 MiB beside what Python and its libraries map; files have more than 192 MiB."""
    nodes, degree, width = 200_000, 8, 256
    col = torch.randint(0, nodes, (nodes * degree,), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_csr(torch.arange(nodes + 1) * degree, col)
    graph.save(tmp_path / "graph")
    x = np.random.default_rng(0).standard_normal((width, nodes), dtype=np.float32).T
    np.save(tmp_path / "x.npy", x)
    files = [tmp_path / "x.npy", *(tmp_path / "graph").iterdir()]
    allowed = 64 << 20
    assert sum(file.stat().st_size for file in files) > 3 * allowed
    code = f"""
import onehop, resource, threading, torch
from pathlib import Path
torch.set_num_threads(1)
threading.stack_size(1 << 20)  # of 8 MiB, four stacks would take half of what is allowed
# Threads and libraries that come with the first call.
onehop.aggregate(onehop.Graph.from_edge_index(torch.tensor([[0], [0]])), torch.ones(1, 4))
lines = Path("/proc/self/status").read_text().splitlines()
taken = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
resource.setrlimit(resource.RLIMIT_DATA, (taken + {allowed}, taken + {allowed}))
onehop.aggregate(onehop.Graph.open("graph"), "x.npy", reduce="mean", out="out.npy")
try:
    torch.ones({allowed} // 4)
except RuntimeError:
    print("the limit holds")
"""
    done = child(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the limit holds" in done.stdout
    found = np.load(tmp_path / "out.npy", mmap_mode="r")
    for first in range(0, width, 64):
        exact = onehop.aggregate(graph, torch.from_numpy(x[:, first : first + 64].copy()), reduce="mean")
        np.testing.assert_allclose(found[:, first : first + 64], exact.numpy(), rtol=1e-6, atol=1e-6)


def test_bad_arguments(graph: Graph, stored: StoredGraph, tmp_path: Path) -> None:
    x = features(tmp_path / "x.npy", NODES, 8)
    features(tmp_path / "long.npy", NODES + 1, 8)
    np.save(tmp_path / "integers.npy", np.ones((NODES, 2), dtype=np.int64))
    (tmp_path / "text.npy").write_text("no array")
    out = {"out": tmp_path / "out.npy"}
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        onehop.aggregate(stored, tmp_path / "missing.npy", **out)
    with pytest.raises(ArgumentError, match="a row for each of the 300 sources"):
        onehop.aggregate(stored, tmp_path / "long.npy", **out)
    with pytest.raises(FileFormatError, match="float16, float32 or float64, got int64"):
        onehop.aggregate(stored, tmp_path / "integers.npy", **out)
    with pytest.raises(FileFormatError, match=r"not a \.npy file"):
        onehop.aggregate(stored, tmp_path / "text.npy", **out)
    with pytest.raises(ArgumentError, match=r"write it with numpy\.save"):
        onehop.aggregate(stored, x, **out)
    with pytest.raises(ArgumentError, match="all of its file"):
        onehop.aggregate(stored, np.load(tmp_path / "x.npy", mmap_mode="r")[:, :4], **out)
    with pytest.raises(ArgumentError, match=r"graph\.save\(folder\) stores one"):
        onehop.aggregate(graph, tmp_path / "x.npy", **out)
    with pytest.raises(ArgumentError, match="give its path"):
        onehop.aggregate(stored, tmp_path / "x.npy")
    for argument in ({"multiply": "add"}, {"node_dim": 1}):
        with pytest.raises(ArgumentError, match="none of them goes with out"):
            onehop.aggregate(stored, tmp_path / "x.npy", **argument, **out)
    with pytest.raises(ArgumentError, match="expected one of sum"):
        onehop.aggregate(stored, tmp_path / "x.npy", reduce="median", **out)
    with pytest.raises(ArgumentError, match=r"4000.* float32, one for each edge"):
        onehop.aggregate(stored, tmp_path / "x.npy", tmp_path / "x.npy", **out)
    with pytest.raises(ArgumentError, match="do not hold one column of 300 sources"):
        onehop.aggregate(stored, tmp_path / "x.npy", memory=1000, **out)
    with pytest.raises(ArgumentError, match="goes with out alone"):
        onehop.aggregate(graph, x, memory=1000)


def test_what_was_written_goes_to_the_disk_now_and_then(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features(tmp_path / "x.npy", NODES, 63)
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 10_000)
    written: list[int] = []
    synced: list[int] = []
    put, sync = MatrixFile.put, MatrixFile.sync

    def noted(self, file, row, first, block):
        put(self, file, row, first, block)
        written.append(block.nbytes)

    def noted_sync(self, file):
        synced.append(len(written))
        sync(self, file)

    monkeypatch.setattr(MatrixFile, "put", noted)
    monkeypatch.setattr(MatrixFile, "sync", noted_sync)
    onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=SMALL)
    waiting, due = 0, []
    for number, count in enumerate(written, 1):
        waiting += count
        if waiting >= 10_000:
            due.append(number)
            waiting = 0
    # Results may be written in the meantime, but no more than until the next time.
    assert len(written) > len(due) > 1
    assert len(synced) == len(due)
    assert all(at_least <= now for at_least, now in zip(due, synced, strict=True))
    assert all(now <= at_most for now, at_most in zip(synced, due[1:], strict=False))
