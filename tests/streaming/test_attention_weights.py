"""Attention weights from disk to disk, against a naive softmax in float64."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onehop import ArgumentError, FileFormatError, Graph
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.streaming import attention
from onehop.streaming.attention import Scores, write_weights
from tests.pairs import pairwise

NODES, HUB = 90, 17
# Bytes of memory: one column and a few edges and rows at a time, and everything at once.
FEW, MANY = 12_000, 10_000_000


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    """A hub with most of the edges, rows without edges, isolated nodes, loops and repeated edges."""
    edges = torch.randint(0, NODES - 10, (2, 1000), generator=generator)
    edges[1, :600] = HUB
    edges[1, edges[1] == 20] = 21
    edges[:, :5] = torch.tensor([[3, 3, 3, HUB, 5], [3, 3, 3, HUB, 4]])
    return edges


@pytest.fixture
def stored(edge_index: Tensor, tmp_path: Path) -> StoredGraph:
    return Graph.from_edge_index(edge_index, NODES).save(tmp_path / "graph")


def scores_of(folder: Path, src: Tensor, dst: Tensor, factors: Tensor, slope: float = 0.2) -> Scores:
    files = []
    for name, values in (("src", src), ("dst", dst)):
        path = folder / f"{name}.npy"
        np.save(path, np.asfortranarray(values.numpy()))
        files.append(MatrixFile.open("x", path))
    return Scores(files[0], files[1], factors, slope)


def naive(graph: StoredGraph, src: Tensor, dst: Tensor, factors: Tensor, slope: float = 0.2) -> np.ndarray:
    """The definition, row by row and edge by edge, in float64, as PyG's softmax has it."""
    a, b, f = (each.double().numpy() for each in (src, dst, factors))
    out = []
    for row in range(graph.num_dst):
        sums = a[graph.col[graph.rowptr[row] : graph.rowptr[row + 1]]] + b[row]
        scores = (np.where(sums > 0, sums, slope * sums) * f).sum(1)
        if len(scores):
            with np.errstate(invalid="ignore"):
                powers = np.exp(scores - scores.max())
            out.append(powers / (powers.sum() + 1e-16))
    return np.concatenate(out) if out else np.empty(0)


def operands(width: int, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
    shapes = ((NODES, width), (NODES, width), (width,))
    return [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]


@pairwise(
    width=[1, 3, 40],
    dtype=[torch.float32, torch.float64],
    memory=[FEW, 30_000, MANY],
    slope=[0.2, 0.0, -1.5],
    block=[1, 1 << 18],
)
def test_the_weights_are_those_of_the_definition(
    width, dtype, memory, slope, block, stored, generator, tmp_path, monkeypatch
):
    monkeypatch.setattr(attention, "_BLOCK_BYTES", block)
    src, dst, factors = operands(width, dtype, generator)
    out = tmp_path / "weights.npy"
    write_weights(stored, scores_of(tmp_path, src, dst, factors, slope), memory, out)
    weights, exact = np.load(out), naive(stored, src, dst, factors, slope)
    assert (weights.shape, weights.dtype) == ((stored.num_edges, 1), src.numpy().dtype)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-11
    np.testing.assert_allclose(weights[:, 0], exact, rtol=tolerance, atol=tolerance * 1e-2)
    assert not out.with_suffix(".tmp").exists()


def test_small_budgets_cut_rows_and_columns(stored, generator, tmp_path, monkeypatch):
    """What the other tests rely on: pieces of a row, several panels, several blocks."""
    seen: list[Any] = []
    process = attention._Weights.process

    def noted(self: Any, tile: Any, rows: Graph) -> None:
        seen.append(tile)
        process(self, tile, rows)

    monkeypatch.setattr(attention._Weights, "process", noted)
    scores = scores_of(tmp_path, *operands(40, torch.float32, generator))
    write_weights(stored, scores, FEW, tmp_path / "weights.npy")
    assert len({tile.first for tile in seen}) > 2
    assert sum(tile.row == HUB and tile.goes_on for tile in seen if tile.first == 0) > 2
    assert sum(tile.degree == 0 for tile in seen if tile.first == 0) > 2


HOSTILE = {
    "nan-source": ("src", 3, float("nan")),
    "nan-destination": ("dst", HUB, float("nan")),
    "infinite-source": ("src", 3, float("inf")),
    "negative-infinite-source": ("src", 3, float("-inf")),
    "infinite-destination": ("dst", HUB, float("inf")),
    "negative-infinite-destination": ("dst", HUB, float("-inf")),
    "large": ("src", 3, 1e30),
}


@pytest.mark.parametrize("memory", [FEW, MANY], ids=["pieces", "at-once"])
@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_that_are_not_finite(name, memory, stored, generator, tmp_path):
    """Each row is what the definition gives for it, and no other row sees it."""
    where, node, value = HOSTILE[name]
    src, dst, _ = operands(1, torch.float32, generator)
    {"src": src, "dst": dst}[where][node] = value
    factors = torch.ones(1)
    write_weights(stored, scores_of(tmp_path, src, dst, factors), memory, tmp_path / "weights.npy")
    weights, exact = np.load(tmp_path / "weights.npy")[:, 0], naive(stored, src, dst, factors)
    assert np.isfinite(exact).any()
    np.testing.assert_allclose(weights, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("low", [-torch.inf, -1000.0])
@pytest.mark.parametrize("low_first", [True, False])
def test_a_long_row_whose_largest_scores_are_in_one_piece(low_first, low, tmp_path):
    """Without the maximum of all pieces, exponentials would be infinite, or differences NaN."""
    sources = torch.arange(600)
    graph = Graph.from_edge_index(torch.stack([sources, torch.zeros_like(sources)]), 600).save(tmp_path / "g")
    large = slice(590, 600) if low_first else slice(0, 10)
    src, dst = torch.full((600, 1), low), torch.zeros(600, 1)
    src[large] = 1000
    write_weights(graph, scores_of(tmp_path, src, dst, torch.ones(1)), FEW, tmp_path / "weights.npy")
    weights = np.load(tmp_path / "weights.npy")[:, 0]
    np.testing.assert_allclose(weights[large], 0.1, rtol=1e-6)
    assert np.count_nonzero(weights) == 10


@pytest.mark.parametrize("nodes", [0, 5])
def test_a_graph_without_edges(nodes, tmp_path):
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), nodes).save(tmp_path / "g")
    scores = scores_of(tmp_path, torch.ones(nodes, 2), torch.ones(nodes, 2), torch.ones(2))
    write_weights(graph, scores, MANY, tmp_path / "weights.npy")
    assert np.load(tmp_path / "weights.npy").shape == (0, 1)


def test_a_budget_of_less_than_a_column(stored, generator, tmp_path):
    scores = scores_of(tmp_path, *operands(2, torch.float32, generator))
    with pytest.raises(ArgumentError, match="do not hold one column"):
        write_weights(stored, scores, 100, tmp_path / "weights.npy")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dst.npy", "graph", "src.npy"]


@pytest.mark.parametrize("memory", [FEW, MANY], ids=["pieces", "at-once"])
def test_a_source_that_the_graph_does_not_have(memory, stored, generator, tmp_path):
    """The last edge of the hub: a piece of a long row, or an edge of a tile of many rows."""
    scores = scores_of(tmp_path, *operands(2, torch.float32, generator))
    place = stored.col_file.stat().st_size - 4 * stored.num_edges + 4 * (int(stored.rowptr[HUB + 1]) - 1)
    with stored.col_file.open("r+b") as file:
        file.seek(place)
        file.write(np.int32(NODES).tobytes())
    with pytest.raises(FileFormatError, match="a source is not in"):
        write_weights(StoredGraph.open(stored.folder), scores, memory, tmp_path / "weights.npy")
    assert not (tmp_path / "weights.tmp").exists()


def test_threads_do_not_change_bits(generator, tmp_path):
    """A row of several pieces, each large enough for torch to divide its sum among threads."""
    edge_index = torch.randint(0, 500, (2, 200_000), generator=generator)
    edge_index[1, :150_000] = HUB
    graph = Graph.from_edge_index(edge_index, 500).save(tmp_path / "graph")
    src, dst = (torch.randn(500, 8, generator=generator) for _ in range(2))
    scores = scores_of(tmp_path, src, dst, torch.randn(8, generator=generator))
    results = []
    for threads in _threads((1, 3)):
        out = tmp_path / f"{threads}.npy"
        write_weights(graph, scores, 6 << 20, out)
        results.append(np.load(out))
    np.testing.assert_array_equal(*results)


def _threads(counts: tuple[int, ...]) -> Iterator[int]:
    before = torch.get_num_threads()
    try:
        for count in counts:
            torch.set_num_threads(count)
            yield count
    finally:
        torch.set_num_threads(before)
