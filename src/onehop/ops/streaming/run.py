"""The streamed aggregation: edges are read ahead and results written while tiles are reduced."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, FileFormatError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.stored import StoredGraph
from onehop.ops.extremum import EXTREMUM
from onehop.ops.linear import AGGREGATE
from onehop.ops.streaming.budget import default_bytes
from onehop.ops.streaming.matrix_file import MatrixFile, read_into
from onehop.ops.streaming.progress import Unfinished
from onehop.ops.streaming.tiles import Tiling, row_tiles, tiling
from onehop.ops.streaming.waiting import Waiting

# So much of the result may wait in the page cache, where it takes memory from everything else.
_SYNC_BYTES = 32 << 20

# First row, graph of the tile, weights of its edges.
_Piece = tuple[int, Graph, Tensor | None]


def aggregate(
    graph: StoredGraph,
    x: object,
    weight: object,
    reduce: str,
    out: str | os.PathLike[str],
    memory: int | None,
) -> Path:
    """See :func:`onehop.aggregate` with ``out``."""
    features = MatrixFile.open("x", x)
    if features.rows != graph.num_src:
        raise ArgumentError(
            f"x: expected a row for each of the {graph.num_src} sources, and {features.path} has "
            f"{features.rows}."
        )
    weights = None if weight is None else MatrixFile.open("weight", weight)
    if weights is not None and (weights.rows, weights.columns, weights.dtype) != (
        graph.num_edges,
        1,
        features.dtype,
    ):
        raise ArgumentError(
            f"weight: expected [{graph.num_edges}] {features.dtype}, one for each edge, and {weights.path} "
            f"has [{weights.rows}, {weights.columns}] {weights.dtype}."
        )
    goal = Path(out)
    unfinished = Unfinished(
        goal,
        {
            "graph": graph.identity,
            "x": _identity(features),
            "weight": None if weights is None else _identity(weights),
            "reduce": reduce,
        },
    )
    budget = default_bytes() if memory is None else memory
    tiles = tiling(graph, features, weights is not None, budget)
    earlier = unfinished.plan()
    if memory is None and earlier is not None and len(earlier) == len(astuple(tiles)):
        # What is free changes; a run that was interrupted goes on by its own plan, where that still fits.
        before = Tiling(*earlier)
        if min(earlier) > 0 and before.columns * features.rows * features.dtype.itemsize <= budget:
            tiles = before
    # Panels of a row-major file would be written in scraps.
    by_columns = features.by_columns or tiles.columns < features.columns
    result = unfinished.begin(
        list(astuple(tiles)), graph.num_dst, features.columns, features.dtype, by_columns
    )
    _run(graph, features, weights, reduce, tiles, unfinished, result)
    unfinished.finish()
    return goal


def _run(
    graph: StoredGraph,
    x: MatrixFile,
    weight: MatrixFile | None,
    reduce: str,
    tiles: Tiling,
    unfinished: Unfinished,
    result: MatrixFile,
) -> None:
    in_a_panel = sum(1 for _ in row_tiles(graph, tiles))
    number = unsynced = 0
    with (
        ThreadPoolExecutor(1, "onehop-read") as reader,
        Waiting(tiles.waiting_bytes, unfinished.note) as writer,
        result.path.open("r+b") as written,
    ):
        # The same for all panels: what an allocator keeps of the last one must not come on top of the next.
        # In large pages, where rows are found faster.
        room = native.empty((x.rows * tiles.columns,), x.torch_dtype)
        least = tiles.columns if x.by_columns else x.columns
        length = max(tiles.piece_bytes // 2 // x.dtype.itemsize, least)
        pieces = [torch.empty(length, dtype=x.torch_dtype) for _ in range(2)]
        for first in range(0, x.columns, tiles.columns):
            last = min(first + tiles.columns, x.columns)
            if number + in_a_panel <= unfinished.done:
                number += in_a_panel
                continue
            panel, loaded = room[: x.rows * (last - first)].view(x.rows, last - first), False
            for begin, piece, factor in _read_ahead(graph, weight, tiles, reader):
                number += 1
                if number <= unfinished.done:
                    continue
                if not loaded:
                    x.load(first, panel, pieces)
                    loaded = True
                block = _reduced(piece, panel, factor, reduce)
                unsynced += block.nbytes
                sync = unsynced >= _SYNC_BYTES
                write = partial(result.put, written, begin, first, block, sync)
                writer.submit(write, block.nbytes, number if sync else None)
                if sync:
                    unsynced = 0
            # Results of this panel have sizes that the next one may have no use for.
            native.extension.pool_clear()
        writer.finish()


def _reduced(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    if reduce in ("sum", "mean"):
        out: Tensor = AGGREGATE(
            x, weight, None, None, graph.number, graph.num_dst, False, reduce == "mean", False, ""
        )
        return out
    found: Tensor = EXTREMUM(x, weight, graph.number, graph.num_dst, reduce, False, False, "")[0]
    return found


def _read_ahead(
    graph: StoredGraph, weight: MatrixFile | None, tiles: Tiling, reader: ThreadPoolExecutor
) -> Iterator[_Piece]:
    """The tiles, the next one being read meanwhile."""
    with graph.col_file.open("rb") as columns:
        factors = None if weight is None else weight.path.open("rb")
        try:
            offset = graph.col_file.stat().st_size - 4 * graph.num_edges
            ahead: Future[_Piece] | None = None
            for tile in row_tiles(graph, tiles):
                following = reader.submit(_made, graph, tile, columns, offset, factors, weight)
                if ahead is not None:
                    yield ahead.result()
                ahead = following
            if ahead is not None:
                yield ahead.result()
        finally:
            if factors is not None:
                factors.close()


def _read(
    pointers: np.ndarray,
    columns: BinaryIO,
    offset: int,
    factors: BinaryIO | None,
    weight: MatrixFile | None,
) -> tuple[Tensor, Tensor | None]:
    begin, end = int(pointers[0]), int(pointers[-1])
    col = torch.empty(end - begin, dtype=torch.int32)
    read_into(columns, offset + 4 * begin, col)
    if factors is None or weight is None:
        return col, None
    values = torch.empty(end - begin, dtype=weight.torch_dtype)
    read_into(factors, weight.offset + weight.dtype.itemsize * begin, values)
    return col, values


def _made(
    graph: StoredGraph,
    tile: tuple[int, int, np.ndarray],
    columns: BinaryIO,
    offset: int,
    factors: BinaryIO | None,
    weight: MatrixFile | None,
) -> _Piece:
    begin, _, pointers = tile
    col, values = _read(pointers, columns, offset, factors, weight)
    rowptr = torch.from_numpy(pointers - pointers[0])
    try:
        return begin, Graph.from_csr(rowptr, col, graph.num_src), values
    except IndexRangeError as error:
        raise FileFormatError(
            f"{graph.col_file}: a source is not in [0, {graph.num_src}) ({error}). Store the graph again."
        ) from error


def _identity(file: MatrixFile) -> list[int | str]:
    stamp = file.path.stat()
    return [str(file.path.resolve()), stamp.st_size, stamp.st_mtime_ns]
