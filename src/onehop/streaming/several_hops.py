"""Several hops from disk to disk: computes the features of SGC, SIGN and APPNP.

Each hop reads the file of the previous hop and writes its own. An interrupted run resumes with its unfinished
hop, at the point at which :func:`onehop.aggregate` resumes.
"""

import os
import shutil
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError, check_choice, integer
from onehop.graph.graph import StoredGraph
from onehop.ops import streaming
from onehop.ops.streaming import panels
from onehop.ops.streaming.budget import budget_bytes
from onehop.ops.streaming.lock import alone
from onehop.ops.streaming.matrix_file import MatrixFile
from onehop.storage import writing
from onehop.streaming.normalisation import SCALED, looped, scale_of
from onehop.streaming.work_folder import NOTE, begin, confirm, features_of, finish, inputs_of, stamp

Normalisation = Literal["gcn", "symmetric", "mean", "none"]
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
Kept = Literal["last", "all"]
# Share of the budget for the pieces of features that are mixed in.
_PIECES = 0.05


def hops(
    graph: StoredGraph,
    x: object,
    count: int,
    out: str | os.PathLike[str],
    *,
    normalise: Normalisation = "gcn",
    teleport: float = 0.0,
    keep: Kept = "last",
    memory: int | None = None,
) -> Path:
    """Aggregate several times, from disk to disk: ``h = (1 - teleport) * S h + teleport * x``.

    With the matrix S of ``normalise="gcn"``, the result is what ``SGConv`` multiplies by its weights (Wu et
    al., ICML 2019) and, with a teleport probability, what ``APPNP`` computes from a prediction (Gasteiger et
    al., ICLR 2019). ``normalise="symmetric"`` and ``keep="all"`` give the features of SIGN (Frasca et al.,
    2020).

    An interrupted run resumes with its unfinished hop when it is called again with the same arguments.

    Args:
        graph: A graph that ``Graph.open`` opened.
        x: [N, F], the features, in a form that :func:`onehop.aggregate` accepts with ``out``.
        count: Number of hops, one or more.
        out: The .npy file of the last hop; with ``keep="all"``, a folder of ``hop1.npy``, ``hop2.npy`` and so
            on. Intermediate hops are stored next to it in ``out.hops``.
        normalise: "gcn": ``D^-1/2 (A + I) D^-1/2``, where each node has exactly one loop, so the graph is
            stored a second time; "symmetric": ``D^-1/2 A D^-1/2``; "mean": ``D^-1 A``; "none": ``A``.
        teleport: The restart probability, 0 to 1.
        keep: "last" or "all".
        memory: See :func:`onehop.aggregate`.

    Returns:
        ``out``.

    Raises:
        ArgumentError: An argument has the wrong value, or the graph's sources and destinations are different
            nodes.
        FileFormatError: A file is truncated or does not have the expected content.
        StorageError: The result cannot be written, or another run is writing it.

    Examples:
        >>> import numpy, onehop, tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]])).save(f"{folder}/graph")
        ...     numpy.save(f"{folder}/x.npy", numpy.float32([[1], [2], [4]]))
        ...     out = onehop.hops(graph, f"{folder}/x.npy", 2, f"{folder}/out.npy", normalise="none")
        ...     print(numpy.load(out).tolist())  # over 0 -> 1 -> 2, node 2 gets the row of 0
        [[0.0], [0.0], [1.0]]
    """
    count = integer("count", count, None)
    _check(graph, count, normalise, teleport, keep)
    goal, features = Path(out), features_of(x, graph)
    with writing("out", goal):
        taken = goal.is_dir() if keep == "last" else goal.exists()
    if taken:
        raise ArgumentError(f"out: {goal} exists; remove it or give another name.")
    budget = budget_bytes(memory)
    size = features.wide.itemsize
    held = size * graph.num_dst if normalise in SCALED else 0
    held += int(budget * _PIECES) if teleport else 0
    streaming.check(graph.num_src, size, budget, held)
    with alone(goal) as lock:
        work = goal.with_name(goal.name + ".hops")
        inputs = inputs_of(graph, features)
        begin(work, [*inputs, [count, normalise, teleport, keep]])
        walked = graph
        if normalise == "gcn":
            walked = looped(graph, work / "graph", budget)
        last = _walk(walked, x, features, count, work, (normalise, teleport, keep), memory, budget)
        confirm(work, graph, features, inputs)
        lock.confirm()
        _finish(work, last, goal, keep)
    return goal


def _check(graph: object, count: int, normalise: str, teleport: float, keep: str) -> None:
    if not isinstance(graph, StoredGraph):
        raise ArgumentError(
            f"graph: expected a graph on disk, got {type(graph).__name__}; graph.save(folder) stores one, "
            "and Graph.open(folder) opens it."
        )
    if graph.num_src != graph.num_dst:
        raise ArgumentError(
            f"graph: hops need as many sources as destinations, got {graph.num_src} and {graph.num_dst}."
        )
    if count < 1:
        raise ArgumentError(f"count: expected 1 or more hops, got {count}.")
    for name, value, choices in (("normalise", normalise, NORMALISATIONS), ("keep", keep, get_args(Kept))):
        check_choice(name, value, choices)
    if not 0 <= teleport <= 1:
        raise ArgumentError(f"teleport: expected a probability, 0 to 1, got {teleport}.")


def _walk(
    graph: StoredGraph,
    x: object,
    features: MatrixFile,
    count: int,
    work: Path,
    how: tuple[str, float, str],
    memory: int | None,
    budget: int,
) -> Path:
    """Run the remaining hops; return the file of the last hop."""
    normalise, teleport, keep = how
    scale, reduce = scale_of(graph, features, normalise), "mean" if normalise == "mean" else "sum"
    scales = streaming.Scales(scale, scale)
    then = _mixing(features, teleport, budget) if teleport else None
    previous: object = x
    for number in range(1, count + 1):
        path = work / f"hop{number}.npy"
        later = [work / f"hop{more}.npy" for more in range(number + 1, count + 1)]
        if not path.exists() and not any(each.exists() for each in later):
            streaming.aggregate(graph, previous, None, reduce, path, memory, scales, then)
        if keep == "last" and number > 1:
            # Two files are enough, so the older one is removed.
            with writing("out", path):
                (work / f"hop{number - 1}.npy").unlink(missing_ok=True)
        previous = path
    return path


def _mixing(features: MatrixFile, teleport: float, budget: int) -> streaming.Then:
    """Return a function that mixes the features into each hop; it reads them for each tile."""
    pieces = min(int(budget * _PIECES), panels.most_bytes(features))
    first = panels.Panels(features, pieces)

    def mixed(row: int, column: int, block: Tensor) -> Tensor:
        start = native.empty(tuple(block.shape), block.dtype)
        first.load(column, start, row)
        # As in PyG: two products and a sum.
        return block.mul_(1 - teleport).add_(start.mul_(teleport))

    return streaming.Then([teleport, stamp(features)], mixed, streaming.Beside(pieces, 1))


def _finish(work: Path, last: Path, goal: Path, keep: str) -> None:
    if keep == "last":
        finish(work, last, goal)
        return
    with writing("out", goal):
        if (work / "graph").exists():
            shutil.rmtree(work / "graph")
        work.rename(goal)
        # Last, because without the note the folder would not belong to any run.
        (goal / NOTE).unlink()
