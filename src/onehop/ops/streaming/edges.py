"""The edges of a stored graph and their weights, tile by tile as they are read, and fingerprints of them."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onehop.errors import FileFormatError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.pieces import PieceReader
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.features import fingerprint
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.tiles import Tiling


class Tile(NamedTuple):
    """Some rows, for the columns of a panel.

    Attributes:
        first: First column of the panel.
        row: First row.
        pointers: [rows + 1], int64: where in the file the edges of each row begin.
        sources: [edges], int32.
        weights: [edges], or None.
    """

    first: int
    row: int
    pointers: np.ndarray
    sources: Tensor
    weights: Tensor | None


class Edges:
    """Reads the tiles of the first panel, then those of the next.

    Args:
        graph: The graph.
        weight: A file with a number for each edge; None means 1.
        columns: Of the features.
        tiles: How everything is cut.

    Attributes:
        fingerprints: After each tile of the first panel: of the contents of all tiles until then.
    """

    def __init__(self, graph: StoredGraph, weight: MatrixFile | None, columns: int, tiles: Tiling) -> None:
        self._graph, self._weight, self._columns, self._tiles = graph, weight, columns, tiles
        self.fingerprints: list[int] = []

    def tiles(self, begin: int, end: int | None = None) -> Iterator[Tile]:
        """The tiles from one number on, up to another."""
        graph, weight, tiles = self._graph, self._weight, self._tiles
        steps = (
            (first, row, pointers)
            for first in range(0, self._columns, tiles.columns)
            for row, pointers in graph.row_blocks(tiles.rows, tiles.edges)
        )
        offset = graph.col_file.stat().st_size - 4 * graph.num_edges
        with ExitStack() as stack:
            col = stack.enter_context(PieceReader(graph.col_file))
            factors = None if weight is None else stack.enter_context(PieceReader(weight.path))
            for first, row, pointers in islice(steps, begin, end):
                place, count = int(pointers[0]), int(pointers[-1] - pointers[0])
                sources = _read(col, offset + 4 * place, count, torch.int32)
                values = None
                if weight is not None and factors is not None:
                    values = _read(
                        factors, weight.offset + weight.dtype.itemsize * place, count, weight.torch_dtype
                    )
                tile = Tile(first, row, pointers, sources, values)
                if first == 0:
                    self._note(tile)
                yield tile

    def graph_of(self, tile: Tile) -> Graph:
        """The rows of a tile, in memory.

        Raises:
            FileFormatError: A source lies outside the graph.
        """
        pointers = torch.from_numpy(tile.pointers - tile.pointers[0])
        try:
            return Graph.from_csr(pointers, tile.sources, self._graph.num_src)
        except IndexRangeError as error:
            raise FileFormatError(
                f"{self._graph.col_file}: a source is not in [0, {self._graph.num_src}) ({error}). Store the "
                "graph again."
            ) from error

    def _note(self, tile: Tile) -> None:
        parts = [torch.from_numpy(np.ascontiguousarray(tile.pointers)), tile.sources]
        if tile.weights is not None:
            parts.append(tile.weights)
        before = self.fingerprints[-1] if self.fingerprints else 0
        digest = hashlib.blake2b(before.to_bytes(8, "little"), digest_size=8)
        for part in parts:
            # Of this thread alone: the others have a tile to reduce.
            digest.update(fingerprint(part, threads=1).to_bytes(8, "little"))
        self.fingerprints.append(int.from_bytes(digest.digest(), "little"))


def _read(reader: PieceReader, place: int, count: int, dtype: torch.dtype) -> Tensor:
    values = torch.empty(count, dtype=dtype, device="cpu")
    reader.read(place, values.nbytes, values.numpy().view(np.uint8), 0)
    return values
