"""The streamed aggregation: edges are read ahead, and results are written, while tiles are reduced."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from torch import Tensor

from onehop import native
from onehop.calls import Aggregate, Extremum, on
from onehop.errors import ArgumentError, FileFormatError
from onehop.graph import Graph
from onehop.graph.stored import StoredGraph
from onehop.ops.library import run as run_call
from onehop.ops.streaming.budget import budget_bytes
from onehop.ops.streaming.edges import Edges, Tile
from onehop.ops.streaming.lock import alone
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile, writing
from onehop.ops.streaming.panels import Features, fingerprint
from onehop.ops.streaming.progress import Contents, Unfinished
from onehop.ops.streaming.tiles import TILES_AHEAD, Beside, Tiling, tiling
from onehop.ops.streaming.waiting import Waiting

LOGGER = logging.getLogger("onehop")


class Scales(NamedTuple):
    """Factors of the rows of sources and of destinations, in memory; None means 1."""

    src: Tensor | None = None
    dst: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the scales; shared memory counts once."""
        sizes = {each.data_ptr(): each.nbytes for each in self if each is not None}
        return sum(sizes.values())


class Then(NamedTuple):
    """A function that changes reduced rows before they are written; the writing thread runs it.

    Attributes:
        what: Everything that the function depends on, as JSON data.
        apply: The function. It takes the number of the first row, the number of the first column, and [rows,
            columns], which it may overwrite, and returns the same shape.
        beside: The memory that the function needs.
    """

    what: object
    apply: Callable[[int, int, Tensor], Tensor]
    beside: Beside


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a streamed aggregation."""

    graph: StoredGraph
    x: MatrixFile
    weight: MatrixFile | None
    scales: Scales

    def stamps(self) -> dict[str, object]:
        """Return the files' sizes and modification times, as JSON data."""
        return {
            "graph": self.graph.identity,
            "x": _stamp(self.x),
            "weight": None if self.weight is None else _stamp(self.weight),
            "scales": [None if each is None else fingerprint(each) for each in self.scales],
        }

    def confirm(self, begun: dict[str, object]) -> None:
        """Check that the inputs are still the ones with which the run began.

        Raises:
            FileFormatError: A file was written to in the meantime.
        """
        now = {**self.stamps(), "graph": StoredGraph.open(self.graph.folder).identity}
        for name, path in (("graph", self.graph.folder), ("x", self.x.path), ("weight", self.weight)):
            if now[name] != begun[name]:
                where = path.path if isinstance(path, MatrixFile) else path
                raise FileFormatError(
                    f"{name}: {where} was written to while it was aggregated. Call again when it is done."
                )


def aggregate(
    graph: StoredGraph,
    x: object,
    weight: object,
    reduce: str,
    out: str | os.PathLike[str],
    memory: int | None,
    scales: Scales = Scales(),  # noqa: B008 (it cannot change)
    then: Then | None = None,
    result: np.dtype | None = None,
) -> Path:
    """Run :func:`onehop.aggregate` with ``out``; see there.

    Args:
        graph: The graph.
        x: The features.
        weight: A number for each edge, or None.
        reduce: The reduction.
        out: The path of the result.
        memory: The budget in bytes, or None.
        scales: Factors of the rows at both ends of an edge.
        then: Changes rows before they are written; None means no change.
        result: The dtype of the result; None means the dtype that a result in memory has.
    """
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
        features.wide,
    ):
        raise ArgumentError(
            f"weight: expected [{graph.num_edges}] {features.wide}, one for each edge, and {weights.path} "
            f"has [{weights.rows}, {weights.columns}] {weights.dtype}."
        )
    scales = Scales(
        _checked("src_scale", scales.src, graph.num_src, features),
        _checked("dst_scale", scales.dst, graph.num_dst, features),
    )
    goal = Path(out)
    with writing(goal):
        folder = goal.is_dir()
    if folder:
        raise ArgumentError(f"out: {goal} is a folder; give the name of a file.")
    with alone(goal) as lock:
        inputs = _Inputs(graph, features, weights, scales)
        begun = inputs.stamps()
        unfinished = Unfinished(
            goal, {**begun, "reduce": reduce, "then": None if then is None else then.what}
        )
        taken = Beside() if then is None else then.beside
        taken = taken._replace(held_bytes=taken.held_bytes + inputs.scales.nbytes)
        budget = budget_bytes(memory)
        tiles = _tiling(inputs, taken, budget, memory is None, unfinished)
        # In a row-major file, panels would have to be written in small scattered parts.
        by_columns = features.by_columns or tiles.columns < features.columns
        # As in memory, factors of 32 bits give the result that dtype.
        plain = weights is None and scales == (None, None)
        dtype = result or (features.result if plain else features.wide)
        file = unfinished.begin(list(astuple(tiles)), graph.num_dst, features.columns, dtype, by_columns)
        _run(inputs, reduce, then, tiles, unfinished, file)
        native.let_go()
        inputs.confirm(begun)
        lock.confirm()
        unfinished.finish()
    return goal


def _checked(name: str, scale: Tensor | None, rows: int, x: MatrixFile) -> Tensor | None:
    """Return a scale as a contiguous tensor.

    Raises:
        ArgumentError: The scale's shape, dtype or device does not fit.
    """
    if scale is None:
        return None
    dtype = WIDE[x.wide]
    if not isinstance(scale, Tensor) or scale.shape != (rows,) or scale.dtype != dtype or not scale.is_cpu:
        got = (
            f"{list(scale.shape)} {scale.dtype} on {scale.device}"
            if isinstance(scale, Tensor)
            else type(scale).__name__
        )
        raise ArgumentError(f"{name}: with out, expected a tensor [{rows}] {dtype} on the CPU, got {got}.")
    return scale.detach().contiguous()


def _tiling(inputs: _Inputs, taken: Beside, budget: int, is_default: bool, unfinished: Unfinished) -> Tiling:
    """Return the plan; if the budget is the default, an earlier run's plan if it fits."""
    tiles = tiling(inputs.graph, inputs.x, inputs.weight is not None, budget, taken)
    earlier = unfinished.plan()
    if is_default and earlier is not None and len(earlier) == len(astuple(tiles)):
        # The free memory changes, so an interrupted run continues with its own plan if that still fits.
        before = Tiling(*earlier)
        if min(earlier) > 0 and before.columns * inputs.x.rows * inputs.x.wide.itemsize <= budget:
            tiles = before
    return tiles


def _run(
    inputs: _Inputs, reduce: str, then: Then | None, tiles: Tiling, unfinished: Unfinished, result: MatrixFile
) -> None:
    features = Features(inputs.x, tiles.columns, tiles.piece_bytes, inputs.scales.src)
    edges = Edges(inputs.graph, inputs.weight, inputs.x.columns, tiles)
    if unfinished.done:
        changed = _changed(features, edges, unfinished.read, tiles)
        if changed is not None:
            LOGGER.warning(
                "%s is begun anew: the contents of %s are not those that were read before.",
                unfinished.out,
                changed,
            )
            unfinished.begin_anew()
            features.fingerprints.clear()
            edges.fingerprints.clear()

    begun = unfinished.done

    def note(written: int) -> None:
        done = begun + written
        so_far = min(done, len(edges.fingerprints))
        last = edges.fingerprints[so_far - 1] if so_far else 0
        unfinished.note(done, Contents(list(features.fingerprints), so_far, last))

    with writing(result.path):
        written = result.path.open("r+b")
    with (
        written,
        ThreadPoolExecutor(1, "onehop-read", native.one_thread) as reader,
        Waiting(tiles.waiting_bytes, partial(result.sync, written), note) as writer,
    ):
        left = ((tile, edges.graph_of(tile)) for tile in edges.tiles(begun))
        pairs = ahead(left, reader)
        carried: Tensor | None = None
        for tile, graph in pairs:
            block = _tile_reduced(tile, graph, features, carried, reduce, inputs.scales.dst)
            carried = None if tile.ends else block
            if not tile.ends:
                continue
            write = partial(_put, result, written, (tile.row, tile.first), block, then)
            writer.submit(write, block.nbytes)
        writer.finish()


def _put(
    result: MatrixFile, file: BinaryIO, place: tuple[int, int], block: Tensor, then: Then | None
) -> None:
    """Write a block at a row and a column, after applying ``then``."""
    row, first = place
    result.put(file, row, first, block if then is None else then.apply(row, first, block))


def _changed(features: Features, edges: Edges, before: Contents, tiles: Tiling) -> str | None:
    """Return an input whose contents changed since an earlier run although its size and time did not.

    This reads again what was read for the finished tiles, which is no more than a restart would read.
    """
    for _ in edges.tiles(0, before.tiles):
        pass
    if edges.fingerprints[-1:] != [before.edges]:
        return "graph or weight"
    for number in range(len(before.panels)):
        features.panel(number * tiles.columns)
    return None if features.fingerprints == before.panels else "x"


def _tile_reduced(
    tile: Tile, graph: Graph, features: Features, carried: Tensor | None, reduce: str, scale: Tensor | None
) -> Tensor:
    """Return a tile's reduced rows, [rows, columns]; for a piece of a row, the result of all pieces so far.

    ``scale``, [num_dst] or None, multiplies complete rows.
    """
    x = features.panel(tile.first) if carried is None else features.panel_with(tile.first, carried)
    if scale is not None:
        scale = scale[tile.row : tile.row + graph.num_dst] if tile.ends else None
    if not tile.degree or reduce != "mean":
        return _reduced(graph, x, tile.weights, reduce, scale)
    if not tile.ends:
        return _reduced(graph, x, tile.weights, "sum", None)
    mean = _reduced(graph, x, tile.weights, "sum", None) / tile.degree
    return mean if scale is None else mean * scale[:, None]


def _reduced(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, scale: Tensor | None) -> Tensor:
    if reduce == "max" or reduce == "min":
        extremum: Tensor = run_call(on(graph, Extremum, x=x, reduce=reduce, weight=weight))[0]
        return extremum if scale is None else extremum * scale[:, None]
    summed: Tensor = run_call(
        on(graph, Aggregate, x=x, weight=weight, dst_scale=scale, mean=reduce == "mean")
    )
    return summed


def ahead(tiles: Iterator[tuple[Tile, Graph]], reader: ThreadPoolExecutor) -> Iterator[tuple[Tile, Graph]]:
    """Yield tiles and their graphs, while the thread of ``reader`` makes the next ones."""
    waiting = deque(reader.submit(next, tiles, None) for _ in range(TILES_AHEAD))
    while (tile := waiting.popleft().result()) is not None:
        waiting.append(reader.submit(next, tiles, None))
        yield tile


def _stamp(file: MatrixFile) -> list[int | str]:
    status = file.path.stat()
    return [str(file.path.resolve()), status.st_size, status.st_mtime_ns]
