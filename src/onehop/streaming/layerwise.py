"""Layer-by-layer inference from disk to disk: all rows of a layer are computed before the next layer begins.

Aggregations read files on disk; everything between two aggregations is computed for some rows at a time.
"""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, fx, nn

from onehop import native
from onehop.errors import ArgumentError
from onehop.graph.graph import StoredGraph
from onehop.ops import streaming
from onehop.ops.streaming.budget import budget_bytes
from onehop.ops.streaming.lock import alone
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile, RawMatrix, create
from onehop.ops.streaming.panels import Panels, most_bytes
from onehop.ops.streaming.waiting import Waiting
from onehop.storage import writing
from onehop.streaming.attention import Attention, write_weights
from onehop.streaming.normalisation import LOOPED, SCALED, looped, scale_of
from onehop.streaming.rowwise import constant, refusal, run, traced
from onehop.streaming.work_folder import begin, confirm, features_of, finish, inputs_of

Key = TypeVar("Key", bound=Hashable)

AHEAD = 2
"""Number of blocks in memory: the block in use, and the block that is being read."""


def row_blocks(
    files: Mapping[Key, MatrixFile], rows: int, step: int, piece_bytes: int
) -> Generator[tuple[int, dict[Key, Tensor]]]:
    """Yield blocks of rows of all matrices: the first row's number, and per matrix [step or fewer, columns].

    A block may be written to, and is valid until the next block is taken. Close the generator if not all
    blocks are taken, because a thread reads ahead. ``rows`` is the number of rows to read, at most a
    matrix's. The pieces that are being read take ``piece_bytes`` for all matrices together. Raises a
    FileFormatError if a file is truncated.
    """
    share = piece_bytes // max(len(files), 1)
    readers = {key: Panels(file, min(share, most_bytes(file))) for key, file in files.items()}
    rooms = [
        {key: native.empty((step, file.columns), WIDE[file.wide]) for key, file in files.items()}
        for _ in range(AHEAD)
    ]

    def read(row: int) -> dict[Key, Tensor]:
        blocks = {key: room[: min(step, rows - row)] for key, room in rooms[row // step % AHEAD].items()}
        for key, block in blocks.items():
            readers[key].load(0, block, row)
        return blocks

    with ThreadPoolExecutor(1, "onehop-rows", native.one_thread) as reader:
        coming = reader.submit(read, 0)
        for row in range(0, rows, step):
            blocks = coming.result()
            if row + step < rows:
                coming = reader.submit(read, row + step)
            yield row, blocks


# Shares of the budget: for the rows of all tensors between two aggregations, and for the pieces in which they
# are read.
_ROWS, _PIECES = 0.75, 0.1
# For each byte that is computed: the byte itself, and intermediate results of a layer or function.
_COMPUTED = 2
# For each byte that is written: the block, a block that waits, and a block transposed for the file.
_WRITTEN = 3
# Maximum rows in a block; a column of this many rows is a large enough request to keep a disk busy.
_MOST_ROWS = 1 << 18


class Layer(NamedTuple):
    """A layer over edges, divided into its parts.

    Attributes:
        before: Maps rows of the layer's input to the rows that are aggregated; None means that they are the
            same.
        normalise: See :func:`onehop.hops`; "loops" replaces the loops as "gcn" does, and scales nothing.
        reduce: With "none" or "loops" as normalisation, see :func:`onehop.aggregate`.
        after: Maps the aggregated rows, one tensor for each head, and the input's rows or None if they are
            not needed, to the layer's result.
        needs_input: Whether ``after`` needs the input's rows.
        what: Everything else that the result depends on except parameters, ready for JSON.
        attention: How the rows from ``before`` give the edges' weights; None means that edges have no weights
            and that there is one head, which has all columns.
    """

    before: Callable[[Tensor], Tensor] | None
    normalise: str
    reduce: str
    after: Callable[[Sequence[Tensor], Tensor | None], Tensor]
    needs_input: bool
    what: object
    attention: Attention | None = None

    @property
    def heads(self) -> int:
        """The number of heads, each of which is aggregated to a file of its own."""
        return 1 if self.attention is None else self.attention.heads


def infer(
    model: nn.Module,
    graph: StoredGraph,
    x: object,
    out: str | os.PathLike[str],
    memory: int | None,
    divide: Callable[[nn.Module], Layer | str | None],
) -> Path:
    """Run :func:`onehop.infer`.

    ``divide`` returns the division of a module, the reason why it cannot be divided, or None if the module is
    not a layer over edges.
    """
    if not isinstance(graph, StoredGraph) or graph.num_src != graph.num_dst:
        raise ArgumentError(
            "graph: expected a graph on disk (Graph.open) with as many sources as destinations, got "
            f"{graph if isinstance(graph, StoredGraph) else type(graph).__name__}."
        )
    features, goal = features_of(x, graph), Path(out)
    wrong = {value.dtype for value in model.parameters()} - {WIDE[features.wide]}
    if wrong:
        raise ArgumentError(
            f"x: the model has parameters of {wrong.pop()}, and {features.path} {features.dtype}, which is "
            f"computed with in {WIDE[features.wide]}."
        )
    plan, nodes = traced(model, lambda module: divide(module) is not None)
    layers = {}
    for node in nodes:
        layer = divide(model.get_submodule(str(node.target)))
        if not isinstance(layer, Layer):
            raise refusal(f"{node.target}: {layer}")
        layers[node] = layer
    with writing("out", goal):
        folder = goal.is_dir()
    if folder:
        raise ArgumentError(f"out: {goal} is a folder; give the name of a file.")
    budget, size = budget_bytes(memory), features.wide.itemsize
    scaled = any(layer.normalise in SCALED for layer in layers.values())
    streaming.check(graph.num_src, size, budget, size * graph.num_dst if scaled else 0)
    with alone(goal) as lock:
        work = goal.with_name(goal.name + ".layers")
        inputs = inputs_of(graph, features)
        settings = [[layer.what, layer.normalise, layer.reduce] for layer in layers.values()]
        begin(work, json.loads(json.dumps([*inputs, str(plan), _digest(model, plan), settings])))
        with torch.no_grad():
            result = _Inference(model, graph, x, layers, work).result(list(plan.nodes), memory, budget)
        confirm(work, graph, features, inputs)
        lock.confirm()
        finish(work, result, goal)
    return goal


class _Held(NamedTuple):
    """A file that exists: a node's rows, or a layer's aggregated rows before its result is computed.

    Attributes:
        node: The node.
        head: The head whose aggregated rows the file has; None means the node's own rows.
    """

    node: fx.Node
    head: int | None = None


class _Inference:
    """The files that exist, and the files that are still to be computed."""

    def __init__(
        self, model: nn.Module, graph: StoredGraph, x: object, layers: dict[fx.Node, Layer], work: Path
    ) -> None:
        self._model, self._graph, self._x, self._layers, self._work = model, graph, x, layers, work
        self._files: dict[_Held, MatrixFile] = {}
        self._features = MatrixFile.open("x", x)

    def result(self, nodes: list[fx.Node], memory: int | None, budget: int) -> Path:
        """Compute the remaining files, and return the file of the model's result."""
        self._files[_Held(nodes[0])] = self._features
        output = nodes[-1].args[0]
        assert isinstance(output, fx.Node)
        left = list(self._layers)
        for node, layer in self._layers.items():
            argument = node.args[0]
            assert isinstance(argument, fx.Node)
            source = self._x if argument is nodes[0] else None
            inner, rows = self._work / f"{node.name}.input.npy", _Held(argument)
            paths = self._paths(node, layer)
            # Files of finished steps may have been removed; existing files are needed by other steps.
            left_to_do = not all(_mark(path).exists() for path in paths)
            if left_to_do and (layer.before is not None or rows not in self._files):
                self._once(inner, partial(self._write_rows, argument, layer.before, True, budget))
                source = inner
            if layer.before is None and inner.exists():
                self._files[rows] = MatrixFile.open("x", inner)
            if left_to_do:
                source = self._files[rows].path if source is None else source
                for head, path in enumerate(paths):
                    self._once(path, partial(self._aggregate, source, layer, head, memory, budget))
                    # Not earlier: a run that was stopped before the mark aggregates once more.
                    with writing("out", path):
                        _weights(path).unlink(missing_ok=True)
            for head, path in enumerate(paths):
                if path.exists():
                    self._files[_Held(node, head)] = MatrixFile.open("x", path)
            if layer.before is not None:
                inner.unlink(missing_ok=True)
            left.remove(node)
            self._remove_but([output, *(each.args[0] for each in left)])
        # No node has this name, because node names have no dots.
        result = self._work / "the.result.npy"
        self._once(result, partial(self._write_rows, output, None, False, budget))
        return result

    def _once(self, path: Path, make: Callable[[Path], object]) -> None:
        """Create a file unless an earlier run did; a file that is no longer needed may have been removed."""
        mark = _mark(path)
        if not mark.exists():
            make(path)
            native.let_go()
            with writing("out", mark):
                mark.touch()

    def _paths(self, node: fx.Node, layer: Layer) -> list[Path]:
        """Return the files of a layer's aggregated rows, one for each head."""
        if layer.attention is None:
            return [self._work / f"{node.name}.npy"]
        return [self._work / f"{node.name}.head{head}.npy" for head in range(layer.heads)]

    def _aggregate(
        self, source: object, layer: Layer, head: int, memory: int | None, budget: int, path: Path
    ) -> None:
        graph = self._graph
        if layer.normalise in LOOPED:
            graph = looped(graph, self._work / "graph", budget)
        # Aggregate in the dtype in which the model computes; sums in 16 bits would be rounded or overflow.
        wide = self._features.wide
        if layer.attention is None:
            scale = scale_of(graph, self._features, layer.normalise)
            scales = streaming.Scales(scale, scale)
            streaming.aggregate(graph, source, None, layer.reduce, path, memory, scales, result=wide)
            return
        rows, weights = MatrixFile.open("x", source), _weights(path)
        self._once(weights, partial(write_weights, graph, layer.attention.scores(rows, head), budget))
        values = layer.attention.values(rows, head)
        x = RawMatrix(values.path, (values.rows, values.columns), values.dtype.name, True, values.offset)
        streaming.aggregate(graph, x, weights, layer.reduce, path, memory, result=wide)

    def _write_rows(
        self,
        node: fx.Node,
        change: Callable[[Tensor], Tensor] | None,
        by_columns: bool,
        budget: int,
        path: Path,
    ) -> None:
        """Compute all rows of a node, apply ``change``, and write them; reading and writing overlap."""
        rows, pieces = self._graph.num_dst, int(budget * _PIECES)
        files = {each: self._files[each] for each in self._sources([node])}
        # A single row shows the widths of all tensors.
        few, seen = min(rows, 1), dict[fx.Node, Tensor]()
        inputs = next((block for _, block in row_blocks(files, few, 1, 0)), {})
        if not few:
            inputs = {
                held: torch.empty(0, file.columns, dtype=WIDE[file.wide], device="cpu")
                for held, file in files.items()
            }
        trial = self._rows(node, change, inputs, seen)
        if trial.dim() != 2 or len(trial) != few:
            raise refusal(f"{node} has the shape {list(trial.shape)} for one node")
        read = sum(block.nbytes for block in inputs.values())
        # Parameters are in memory anyway.
        computed = sum(value.nbytes for each, value in seen.items() if each.op != "get_attr") + trial.nbytes
        each_bytes = AHEAD * read + _COMPUTED * computed + _WRITTEN * trial.nbytes
        step = min(max(int(budget * _ROWS) // max(each_bytes, 1), 1), _MOST_ROWS, max(rows, 1))
        beside = path.with_suffix(".tmp")
        try:
            file = create(beside, rows, trial.size(1), self._features.wide, by_columns)
            with closing(row_blocks(files, rows, step, pieces)) as blocks:
                made_of = ((row, _copied(self._rows(node, change, inputs), inputs)) for row, inputs in blocks)
                _write(file, made_of, step * trial.nbytes)
            with writing("out", path):
                beside.replace(path)
        except BaseException:
            # A later run would start it again, and other files can use its space.
            beside.unlink(missing_ok=True)
            raise

    def _rows(
        self,
        node: fx.Node,
        change: Callable[[Tensor], Tensor] | None,
        inputs: Mapping["_Held", Tensor],
        seen: dict[fx.Node, Tensor] | None = None,
    ) -> Tensor:
        """Return [rows, .] of a node, from the same rows of files; ``seen`` collects all nodes' rows."""
        out = self._value(node, inputs, {} if seen is None else seen)
        return out if change is None else change(out)

    def _value(self, node: fx.Node, inputs: Mapping["_Held", Tensor], seen: dict[fx.Node, Tensor]) -> Tensor:
        out = seen.get(node, inputs.get(_Held(node)))
        if out is None:
            # Not a nested function that refers to itself: the reference cycle would keep all rows of the
            # block.
            value = partial(self._value, inputs=inputs, seen=seen)
            if _Held(node, 0) in inputs:
                heads = [inputs[_Held(node, head)] for head in range(self._layers[node].heads)]
                out = self._finished(node, heads, value)
            else:
                out = run(node, self._model, value)
        seen[node] = out
        return out

    def _finished(
        self, node: fx.Node, aggregated: Sequence[Tensor], value: Callable[[fx.Node], Tensor]
    ) -> Tensor:
        """Return the result of a layer from the aggregated rows of its heads."""
        layer, argument = self._layers[node], node.args[0]
        assert isinstance(argument, fx.Node)
        return layer.after(aggregated, value(argument) if layer.needs_input else None)

    def _sources(self, roots: list[Any]) -> set[_Held]:
        """Return the files from which nodes are computed."""
        files: set[_Held] = set()
        waiting, met = list(roots), set(roots)
        while waiting:
            node = waiting.pop()
            follow = node.all_input_nodes
            if _Held(node) in self._files:
                files.add(_Held(node))
                follow = []
            elif _Held(node, 0) in self._files:
                layer = self._layers[node]
                files.update(_Held(node, head) for head in range(layer.heads))
                follow = [node.args[0]] if layer.needs_input else []
            waiting.extend(each for each in follow if each not in met)
            met.update(follow)
        return files

    def _remove_but(self, roots: list[Any]) -> None:
        """Remove the files that no node that is still needed is computed from."""
        for held in set(self._files) - self._sources(roots):
            path = self._files.pop(held).path
            if path.parent == self._work:
                with writing("out", path):
                    path.unlink()


def _copied(block: Tensor, inputs: Mapping[_Held, Tensor]) -> Tensor:
    """Return a block that stays valid when the next rows are read into the memory of the inputs."""
    is_input = any(block.data_ptr() == rows.data_ptr() for rows in inputs.values())
    return block.clone() if is_input else block


def _write(file: MatrixFile, blocks: Iterable[tuple[int, Tensor]], most_bytes: int) -> None:
    """Write blocks of rows while the next ones are computed; ``most_bytes`` of them may wait."""
    with writing("out", file.path):
        written = file.path.open("r+b")
    with written, Waiting(most_bytes, partial(file.sync, written), _nothing) as writer:
        for row, block in blocks:
            writer.submit(partial(file.put, written, row, 0, block), block.nbytes)
        writer.finish()
        with writing("out", file.path):
            os.fsync(written.fileno())


def _nothing(written: int) -> None:
    """Record nothing, because an interrupted file is started again."""


def _mark(path: Path) -> Path:
    """Return the empty marker file that says that a file is complete."""
    return path.with_suffix(".done")


def _weights(path: Path) -> Path:
    """Return the file of the weights of the edges with which a head's rows are aggregated to ``path``."""
    return path.with_suffix(".weights.npy")


def _digest(model: nn.Module, plan: fx.Graph) -> str:
    """Return a hash of the parameters, the buffers, other tensors in use, and the model's description."""
    digest = hashlib.blake2b(str(model).encode())
    others = ((node.name, constant(node)) for node in plan.nodes if node.op == "get_attr")
    for name, value in (*model.named_parameters(), *model.named_buffers(), *others):
        digest.update(f"{name} {list(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
