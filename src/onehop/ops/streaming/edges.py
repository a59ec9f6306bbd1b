"""Reading of a stored graph's edges and weights, tile by tile, with fingerprints of their contents."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onehop.errors import FileFormatError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.pieces import PieceReader
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.panels import fingerprint
from onehop.ops.streaming.tiles import Tiling


class Tile(NamedTuple):
    """Some rows, or a piece of a row that is too long, for the columns of a panel.

    A piece that continues a row has one more edge before the others, with weight 1: its source is an extra
    row after all sources, which holds the result of the earlier pieces. So the row is reduced edge after
    edge, as if it were whole, and has the same bits.

    Attributes:
        first: The first column of the panel.
        row: The first row.
        pointers: [rows + 1], int64: the positions in the file where the edges of each row begin.
        sources: [edges], int32.
        weights: [edges], or None.
        degree: For a piece, the number of edges of the whole row; 0 for whole rows.
        goes_on: Whether earlier pieces of the same row exist.
        ends: Whether no later piece of the same row exists.
    """

    first: int
    row: int
    pointers: np.ndarray
    sources: Tensor
    weights: Tensor | None
    degree: int
    goes_on: bool
    ends: bool


class _Cut(NamedTuple):
    """Some rows, or a piece of a row; the fields are as in :class:`Tile`."""

    row: int
    pointers: np.ndarray
    degree: int
    goes_on: bool
    ends: bool


class Edges:
    """Reads the tiles of the first panel, then the tiles of the next panels.

    Args:
        graph: The graph.
        weight: A file with a number for each edge; None means 1.
        columns: Number of columns of the features.
        tiles: The division into panels and tiles.

    Attributes:
        fingerprints: For each tile of the first panel, the fingerprint of the contents of all tiles up to it;
            all pieces of a row count as one tile.
    """

    def __init__(self, graph: StoredGraph, weight: MatrixFile | None, columns: int, tiles: Tiling) -> None:
        self._graph, self._weight, self._columns, self._tiles = graph, weight, columns, tiles
        self.fingerprints: list[int] = []
        # The fingerprint after a piece of a row that has later pieces.
        self._so_far = 0

    def tiles(self, begin: int, end: int | None = None) -> Iterator[Tile]:
        """Yields the tiles with numbers from ``begin`` to ``end``; pieces of a row have the same number."""
        graph, weight, tiles = self._graph, self._weight, self._tiles
        steps = ((first, cut) for first in range(0, self._columns, tiles.columns) for cut in self._cuts())
        offset = graph.col_file.stat().st_size - 4 * graph.num_edges
        with ExitStack() as stack:
            col = stack.enter_context(PieceReader(graph.col_file))
            factors = None if weight is None else stack.enter_context(PieceReader(weight.path))
            number = 0
            for first, cut in steps:
                now, number = number, number + cut.ends
                if now < begin:
                    continue
                if end is not None and now >= end:
                    return
                place, count = int(cut.pointers[0]), int(cut.pointers[-1] - cut.pointers[0])
                carried = graph.num_src if cut.goes_on else None
                sources = _read(col, offset + 4 * place, count, torch.int32, carried)
                values = None
                if weight is not None and factors is not None:
                    begins = weight.offset + weight.dtype.itemsize * place
                    values = _read(factors, begins, count, weight.torch_dtype, 1 if cut.goes_on else None)
                tile = Tile(first, cut.row, cut.pointers, sources, values, cut.degree, cut.goes_on, cut.ends)
                if first == 0:
                    self._note(tile)
                yield tile

    def _cuts(self) -> Iterator[_Cut]:
        """Yields all rows; rows with more edges than a tile are divided into pieces."""
        most = self._tiles.edges
        for row, pointers in self._graph.row_blocks(self._tiles.rows, most):
            begin, end = int(pointers[0]), int(pointers[-1])
            if len(pointers) > 2 or end - begin <= most:
                yield _Cut(row, pointers, 0, False, True)
                continue
            for place in range(begin, end, most):
                piece = np.array([place, min(place + most, end)])
                yield _Cut(row, piece, end - begin, place > begin, place + most >= end)

    def graph_of(self, tile: Tile) -> Graph:
        """Return the rows of a tile as a graph in memory.

        Raises:
            FileFormatError: A source is not in the graph.
        """
        pointers = torch.from_numpy(tile.pointers - tile.pointers[0])
        sources = self._graph.num_src
        try:
            if not tile.goes_on:
                return Graph.from_csr(pointers, tile.sources, sources)
            if int(tile.sources[1:].max()) >= sources:
                raise IndexRangeError(f"col: expected numbers below {sources}")
            pointers[1] += 1
            return Graph.from_csr(pointers, tile.sources, sources + 1)
        except IndexRangeError as error:
            raise FileFormatError(
                f"{self._graph.col_file}: a source is not in [0, {self._graph.num_src}) ({error}). Store the "
                "graph again."
            ) from error

    def _note(self, tile: Tile) -> None:
        parts = [torch.from_numpy(np.ascontiguousarray(tile.pointers)), tile.sources]
        if tile.weights is not None:
            parts.append(tile.weights)
        whole = self.fingerprints[-1] if self.fingerprints else 0
        before = self._so_far if tile.goes_on else whole
        digest = hashlib.blake2b(before.to_bytes(8, "little"), digest_size=8)
        for part in parts:
            # This uses only one thread, because the other threads are reducing a tile.
            digest.update(fingerprint(part, threads=1).to_bytes(8, "little"))
        self._so_far = int.from_bytes(digest.digest(), "little")
        if tile.ends:
            self.fingerprints.append(self._so_far)


def _read(reader: PieceReader, place: int, count: int, dtype: torch.dtype, before: int | None) -> Tensor:
    """Read ``count`` numbers, [count]; if ``before`` is given, it is prepended."""
    lead = int(before is not None)
    values = torch.empty(lead + count, dtype=dtype, device="cpu")
    if before is not None:
        values[0] = before
    reader.read(place, count * dtype.itemsize, values[lead:].numpy().view(np.uint8), 0)
    return values
