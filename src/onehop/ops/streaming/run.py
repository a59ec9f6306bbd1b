"""The streamed aggregation: edges are read ahead and results written while tiles are reduced."""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, FileFormatError, IndexRangeError
from onehop.graph import Graph
from onehop.graph.pieces import PieceReader
from onehop.graph.stored import StoredGraph
from onehop.ops.extremum import EXTREMUM
from onehop.ops.linear import AGGREGATE
from onehop.ops.streaming.budget import default_bytes
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.ops.streaming.panels import Panels
from onehop.ops.streaming.progress import Unfinished
from onehop.ops.streaming.tiles import TILES_AHEAD, Tiling, tiling
from onehop.ops.streaming.waiting import Waiting

# So much of the result may wait in the page cache, where it takes memory from everything else.
_SYNC_BYTES = 32 << 20

# First column of the panel, first row of the tile, its graph, weights of its edges.
_Tile = tuple[int, int, Graph, Tensor | None]


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
    unsynced, loaded = 0, -1
    with (
        ThreadPoolExecutor(1, "onehop-read") as reader,
        Waiting(tiles.waiting_bytes, unfinished.note) as writer,
        result.path.open("r+b") as written,
    ):
        # The same for all panels: what an allocator keeps of the last one must not come on top of the next.
        # In large pages, where rows are found faster.
        room = native.empty((x.rows * tiles.columns,), x.torch_dtype)
        panels = Panels(x, tiles.piece_bytes)
        made = _ahead(_tiles(graph, x, weight, tiles, unfinished.done), reader)
        for number, (first, begin, tile, factor) in enumerate(made, unfinished.done + 1):
            if first != loaded:
                # Results of the last panel have sizes that this one may have no use for.
                native.extension.pool_clear()
                width = min(tiles.columns, x.columns - first)
                panel = room[: x.rows * width].view(x.rows, width)
                panels.load(first, panel)
                loaded = first
            block = _reduced(tile, panel, factor, reduce)
            unsynced += block.nbytes
            sync = unsynced >= _SYNC_BYTES
            write = partial(result.put, written, begin, first, block, sync)
            writer.submit(write, block.nbytes, number if sync else None)
            if sync:
                unsynced = 0
        writer.finish()


def _reduced(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str) -> Tensor:
    if reduce in ("sum", "mean"):
        out: Tensor = AGGREGATE(
            x, weight, None, None, graph.number, graph.num_dst, False, reduce == "mean", False, ""
        )
        return out
    found: Tensor = EXTREMUM(x, weight, graph.number, graph.num_dst, reduce, False, False, "")[0]
    return found


def _tiles(
    graph: StoredGraph, x: MatrixFile, weight: MatrixFile | None, tiles: Tiling, done: int
) -> Iterator[_Tile]:
    """The tiles of the first panel, then those of the next; so many at the beginning are left out."""
    steps = (
        (first, row, pointers)
        for first in range(0, x.columns, tiles.columns)
        for row, pointers in graph.row_blocks(tiles.rows, tiles.edges)
    )
    offset = graph.col_file.stat().st_size - 4 * graph.num_edges
    with ExitStack() as stack:
        col = stack.enter_context(PieceReader(graph.col_file))
        factors = None if weight is None else stack.enter_context(PieceReader(weight.path))
        for first, row, pointers in islice(steps, done, None):
            begin, count = int(pointers[0]), int(pointers[-1] - pointers[0])
            sources = _read(col, offset + 4 * begin, count, torch.int32)
            values = None
            if weight is not None and factors is not None:
                place = weight.offset + weight.dtype.itemsize * begin
                values = _read(factors, place, count, weight.torch_dtype)
            yield first, row, _graph(graph, pointers, sources), values


def _graph(graph: StoredGraph, pointers: np.ndarray, sources: Tensor) -> Graph:
    """Some rows of a graph, in memory."""
    try:
        return Graph.from_csr(torch.from_numpy(pointers - pointers[0]), sources, graph.num_src)
    except IndexRangeError as error:
        raise FileFormatError(
            f"{graph.col_file}: a source is not in [0, {graph.num_src}) ({error}). Store the graph again."
        ) from error


def _read(reader: PieceReader, place: int, count: int, dtype: torch.dtype) -> Tensor:
    values = torch.empty(count, dtype=dtype, device="cpu")
    reader.read(place, values.nbytes, values.numpy().view(np.uint8), 0)
    return values


def _ahead(tiles: Iterator[_Tile], reader: ThreadPoolExecutor) -> Iterator[_Tile]:
    """The same, the next ones being made by another thread while one is in use, or a panel is read."""
    waiting = deque(reader.submit(next, tiles, None) for _ in range(TILES_AHEAD))
    while (tile := waiting.popleft().result()) is not None:
        waiting.append(reader.submit(next, tiles, None))
        yield tile


def _identity(file: MatrixFile) -> list[int | str]:
    stamp = file.path.stat()
    return [str(file.path.resolve()), stamp.st_size, stamp.st_mtime_ns]
