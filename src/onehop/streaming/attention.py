"""Attention weights from disk to disk: a softmax over each row's edges, of scores that nodes' features give.

Scores are computed for tiles of edges. A row whose edges fit into a tile is finished at once. The scores of a
longer row are written first, and changed to weights in a second pass over that row.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from onehop import native
from onehop.calls import EdgeSoftmax, on
from onehop.graph import Graph
from onehop.graph.graph import StoredGraph
from onehop.graph.pieces import PieceReader
from onehop.ops.library import run as run_call
from onehop.ops.streaming.edges import Edges, Tile
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile, create
from onehop.ops.streaming.panels import Features, Panels, most_bytes
from onehop.ops.streaming.run import ahead
from onehop.ops.streaming.tiles import Tiling, tiling
from onehop.storage import writing

# Bytes of the rows of both ends of edges that are added at a time. They stay in the cache of a core, and are
# too few for torch to divide their sums among threads.
_BLOCK_BYTES = 1 << 18


class Attention(NamedTuple):
    """Columns of a layer's rows from which the scores of edges are computed, for GAT and GATv2.

    The score of an edge is ``sum over c of factors[h, c] * leaky_relu(source[c] + destination[c])``. GATv2
    (Brody et al., ICLR 2022) sums over all channels of a head. In GAT (Velickovic et al., ICLR 2018) each end
    has a single number for a head, and the factor is 1.

    Attributes:
        heads: Number of heads.
        channels: Number of columns of a head. The first ``heads * channels`` columns are aggregated.
        sources: The first column of the sources' parts of the scores.
        destinations: The first column of the destinations' parts of the scores.
        factors: [heads, columns of a part].
        negative_slope: The slope of the leaky ReLU for negative numbers.
    """

    heads: int
    channels: int
    sources: int
    destinations: int
    factors: Tensor
    negative_slope: float

    def values(self, rows: MatrixFile, head: int) -> MatrixFile:
        """Return the columns of a head that are aggregated, of a file stored by columns."""
        return _columns(rows, head * self.channels, self.channels)

    def scores(self, rows: MatrixFile, head: int) -> "Scores":
        """Return the operands of a head's scores, of a file stored by columns."""
        width = self.factors.size(1)
        sources, destinations = (
            _columns(rows, first + head * width, width) for first in (self.sources, self.destinations)
        )
        return Scores(sources, destinations, self.factors[head].detach(), self.negative_slope)


class Scores(NamedTuple):
    """The operands of one head's scores; see :class:`Attention`.

    Attributes:
        sources: [N, C], the sources' parts.
        destinations: [N, C], the destinations' parts.
        factors: [C], of the files' wide dtype.
        negative_slope: The slope of the leaky ReLU for negative numbers.
    """

    sources: MatrixFile
    destinations: MatrixFile
    factors: Tensor
    negative_slope: float


def write_weights(graph: StoredGraph, scores: Scores, budget: int, path: Path) -> None:
    """Write the softmax of one head's scores over each row's edges, [E], in the order of the stored edges.

    Args:
        graph: The graph.
        scores: The operands of the scores.
        budget: Bytes of memory.
        path: The .npy file. Another file beside it has the scores until they are complete.

    Raises:
        ArgumentError: The budget is too small for one column.
        FileFormatError: A file is truncated, or a source is not in the graph.
        StorageError: The disk is full.
    """
    tiles = tiling(graph, scores.sources, True, budget)
    beside = path.with_suffix(".tmp")
    try:
        file = create(beside, graph.num_edges, 1, scores.sources.wide, True)
        with writing("out", beside):
            written = beside.open("r+b")
        with (
            written,
            PieceReader(beside) as reader,
            ThreadPoolExecutor(1, "onehop-read", native.one_thread) as reading,
        ):
            weights = _Weights(graph, scores, tiles, file, written, reader)
            edges = Edges(graph, None, scores.sources.columns, tiles)
            pairs = ((tile, edges.graph_of(tile)) for tile in edges.tiles(0))
            for tile, rows in ahead(pairs, reading):
                weights.process(tile, rows)
            file.sync(written)
        with writing("out", path):
            beside.replace(path)
    except BaseException:
        # A later run would start it again, and other files can use its space.
        beside.unlink(missing_ok=True)
        raise


class _Weights:
    """Computes the scores of the tiles of all panels, and writes each tile's scores or weights."""

    def __init__(
        self,
        graph: StoredGraph,
        scores: Scores,
        tiles: Tiling,
        file: MatrixFile,
        written: BinaryIO,
        reader: PieceReader,
    ) -> None:
        self._scores, self._tiles = scores, tiles
        self._file, self._written, self._reader = file, written, reader
        self._features = Features(scores.sources, tiles.columns, tiles.piece_bytes)
        # Results wait nowhere here, so their share of the budget is for the destinations' pieces.
        pieces = min(tiles.waiting_bytes // 2, most_bytes(scores.destinations))
        self._destinations = Panels(scores.destinations, pieces)
        self._block_bytes = min(tiles.waiting_bytes // 2, _BLOCK_BYTES)
        self._last = (scores.sources.columns - 1) // tiles.columns * tiles.columns
        # Of a row in pieces: its first edge, and the maximum of its scores so far.
        self._begin, self._most = 0, scores.factors.new_zeros(())

    def process(self, tile: Tile, rows: Graph) -> None:
        """Add a panel's part to the scores of a tile; after the last panel, change scores to weights."""
        place = int(tile.pointers[0])
        values = self._parts(tile)
        if tile.first:
            values += self._read(place, len(values))
        if tile.first == self._last:
            if tile.degree:
                self._piece(tile, place, values)
                return
            values = run_call(on(rows, EdgeSoftmax, scores=values[:, None]))[:, 0]
        self._write(place, values)

    def _piece(self, tile: Tile, place: int, values: Tensor) -> None:
        """Write the scores of a piece of a row; after the last piece, change the row's scores to weights."""
        self._write(place, values)
        if not tile.goes_on:
            self._begin, self._most = place, values.max()
        self._most = torch.maximum(self._most, values.max())
        if not tile.ends:
            return
        step, end = self._tiles.edges, place + len(values)
        pieces = [(begin, min(step, end - begin)) for begin in range(self._begin, end, step)]
        # At least 1, so that the 1e-16 that PyG adds to it changes nothing. NumPy adds in one thread; torch's
        # sum depends on the number of its threads.
        total = 0.0
        for begin, count in pieces:
            powers = self._read(begin, count).sub_(self._most).exp_().numpy()
            total += float(powers.sum(dtype=np.float64))
        for begin, count in pieces:
            self._write(begin, self._read(begin, count).sub_(self._most).exp_().div_(total))

    def _parts(self, tile: Tile) -> Tensor:
        """Return [edges]: the parts of a tile's scores that come from the columns of a panel."""
        features = self._features.panel(tile.first)
        width, sources = features.size(1), tile.sources[int(tile.goes_on) :]
        destinations = native.empty((len(tile.pointers) - 1, width), features.dtype)
        self._destinations.load(tile.first, destinations, tile.row)
        factors = self._scores.factors[tile.first : tile.first + width]
        out = torch.empty(len(sources), dtype=features.dtype, device="cpu")
        # For each edge of a block: three rows, and the numbers of its source and its row.
        step = max(self._block_bytes // (3 * width * features.element_size() + 24), 1)
        for begin, end, ends in _blocks(tile.pointers, step):
            both = features.index_select(0, sources[begin:end])
            both += destinations.index_select(0, ends)
            F.leaky_relu(both, self._scores.negative_slope, inplace=True)
            torch.sum(both.mul_(factors), 1, out=out[begin:end])
        return out

    def _read(self, place: int, count: int) -> Tensor:
        out = torch.empty(count, dtype=WIDE[self._file.dtype], device="cpu")
        at = self._file.offset + place * out.element_size()
        self._reader.read(at, out.nbytes, out.numpy().view(np.uint8), 0)
        return out

    def _write(self, place: int, values: Tensor) -> None:
        self._file.put(self._written, place, 0, values[:, None])


def _blocks(pointers: np.ndarray, step: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yield blocks of a tile's edges: the first edge, the end, and each edge's row, counted from 0."""
    places = pointers - pointers[0]
    for begin in range(0, int(places[-1]), step):
        end = min(begin + step, int(places[-1]))
        first = int(np.searchsorted(places, begin, "right")) - 1
        last = int(np.searchsorted(places, end, "left"))
        counts = np.diff(places[first : last + 1].clip(begin, end))
        yield begin, end, torch.from_numpy(np.repeat(np.arange(first, last), counts))


def _columns(rows: MatrixFile, first: int, count: int) -> MatrixFile:
    """Return some columns of a file that is stored by columns."""
    assert rows.by_columns
    offset = rows.offset + first * rows.rows * rows.dtype.itemsize
    return MatrixFile(rows.path, rows.rows, count, rows.dtype, True, offset)
