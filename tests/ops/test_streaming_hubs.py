"""Rows with more edges than a tile: the memory that they take, their bits, interruptions in their midst."""

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
from onehop import FileFormatError, Graph
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming import run
from onehop.ops.streaming.edges import Edges
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.tiles import tiling
from tests.pairs import pairwise
from tests.processes import Stop

NODES, WIDTH = 50, 5
# So little that a tile has some ten edges.
TINY = 10_000


@pytest.fixture
def graph(generator: torch.Generator) -> Graph:
    """Hubs at the beginning, in the middle, one after the other, and at the end; some rows are empty.

    None has more than 1,024 edges: longer rows are cut in memory, too.
    """
    degrees = torch.randint(0, 4, (NODES,), generator=generator)
    degrees[torch.tensor([0, 20, 21, NODES - 1])] = torch.tensor([700, 1000, 333, 900])
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    return Graph.from_csr(rowptr, torch.randint(0, NODES, (int(rowptr[-1]),), generator=generator))


def features(path: Path, dtype: str = "float32") -> torch.Tensor:
    x = np.random.default_rng(1).standard_normal((NODES, WIDTH)).astype(dtype)
    np.save(path, np.asfortranarray(x))
    return torch.from_numpy(x)


@pytest.fixture
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.usefixtures("one_thread")
@pairwise(reduce=["sum", "mean", "max", "min"], weighted=[False, True], dtype=["float32", "float64"])
def test_bits_as_in_memory(
    graph: Graph, stored: StoredGraph, tmp_path: Path, reduce: str, weighted: bool, dtype: str
) -> None:
    x = features(tmp_path / "x.npy", dtype)
    weight = None
    if weighted:
        weight = torch.randn(graph.num_edges, generator=torch.Generator().manual_seed(3)).to(x.dtype)
        np.save(tmp_path / "w.npy", weight.numpy())
    plan = tiling(stored, MatrixFile.open("x", tmp_path / "x.npy"), weighted, TINY)
    assert plan.edges < 100
    given = tmp_path / "w.npy" if weighted else None
    path = onehop.aggregate(stored, tmp_path / "x.npy", given, reduce, out=tmp_path / "out.npy", memory=TINY)
    exact = onehop.aggregate(graph, x, weight, reduce)
    np.testing.assert_array_equal(np.load(path), exact.numpy())


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_what_is_not_a_number_stays(stored: StoredGraph, tmp_path: Path, reduce: str) -> None:
    x = features(tmp_path / "x.npy")
    source = int(stored.col[3])  # of the first hub, in its first piece
    x[source] = float("nan")
    x[int(stored.col[400])] = float("inf")
    np.save(tmp_path / "x.npy", x.numpy())
    path = onehop.aggregate(stored, tmp_path / "x.npy", reduce=reduce, out=tmp_path / "o.npy", memory=TINY)
    exact = onehop.aggregate(stored.load(), x, reduce=reduce).numpy()
    assert np.isnan(exact[0]).all()
    np.testing.assert_array_equal(np.load(path), exact)


def test_tiles_have_no_more_edges_than_the_plan_says(stored: StoredGraph, tmp_path: Path) -> None:
    features(tmp_path / "x.npy")
    plan = tiling(stored, MatrixFile.open("x", tmp_path / "x.npy"), False, TINY)
    edges = Edges(stored, None, WIDTH, plan)
    tiles = [tile for tile in edges.tiles(0) if tile.first == 0]
    assert max(len(tile.sources) - tile.goes_on for tile in tiles) == plan.edges
    assert sum(len(tile.sources) - tile.goes_on for tile in tiles) == stored.num_edges
    assert len(edges.fingerprints) == sum(tile.ends for tile in tiles) < len(tiles)
    # From any number on: all pieces of the row.
    for begin in range(len(edges.fingerprints)):
        first = next(edges.tiles(begin))
        assert not first.goes_on


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("piece", [2, 9, 30])
def test_an_interruption_in_the_midst_of_a_row(
    graph: Graph, stored: StoredGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    x = features(tmp_path / "x.npy")
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    reduced, seen = run._tile_reduced, [0]

    def until(*given: Any) -> torch.Tensor:
        seen[0] += 1
        if seen[0] == piece:
            raise Stop
        return reduced(*given)

    with monkeypatch.context() as patch:
        patch.setattr(run, "_tile_reduced", until)
        with pytest.raises(Stop):
            onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=TINY)
    note = tmp_path / "out.npy.progress.json"
    done = json.loads(note.read_text())["done"] if note.exists() else 0
    assert done < piece - 1  # pieces do not count
    path = onehop.aggregate(stored, tmp_path / "x.npy", out=tmp_path / "out.npy", memory=TINY)
    np.testing.assert_array_equal(np.load(path), onehop.aggregate(graph, x).numpy())


def test_a_source_behind_the_others_is_a_sentence_in_every_piece(stored: StoredGraph, tmp_path: Path) -> None:
    """Where a piece goes on with a row there is one more source, but not for the file."""
    features(tmp_path / "x.npy")
    col = np.load(stored.col_file)
    col[650] = NODES
    np.save(stored.col_file, col)
    with pytest.raises(FileFormatError, match=r"a source is not in \[0, 50\)"):
        onehop.aggregate(Graph.open(stored.folder), tmp_path / "x.npy", out=tmp_path / "out.npy", memory=TINY)


HUB = """
import resource, threading, torch, onehop
from pathlib import Path
torch.set_num_threads(1)
threading.stack_size(1 << 20)
onehop.aggregate(onehop.Graph.from_edge_index(torch.tensor([[0], [0]])), torch.ones(1, 4))
lines = Path("/proc/self/status").read_text().splitlines()
taken = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
# Beside what it is allowed: stacks of five threads, and what the C library keeps back.
allowed = 8 << 20
limit = taken + allowed + (24 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
onehop.aggregate(onehop.Graph.open("graph"), "x.npy", reduce="mean", out="out.npy", memory=allowed)
"""


def test_a_row_of_millions_of_edges_in_a_few_mebibytes(tmp_path: Path) -> None:
    """In one piece, the row's edges alone would take 12 bytes each: 60 MB, where 32 MB can be had."""
    edges = 5_000_000
    col = torch.arange(edges, dtype=torch.int32) % 1000
    Graph.from_csr(torch.tensor([0, 3, edges - 4, edges]), col, 1000).save(tmp_path / "graph")
    x = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    finished = subprocess.run(
        [sys.executable, "-c", HUB],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    sums = np.add.reduceat(x[col.numpy()].astype(np.float64), [0, 3, edges - 4])
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"), sums / [[3], [edges - 7], [4]], rtol=1e-3, atol=1e-4
    )
