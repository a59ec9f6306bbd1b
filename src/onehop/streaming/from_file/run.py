"""The ingest: four steps; an interrupted run resumes after its last finished step."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, SupportsIndex

import numpy as np

from onehop import native, sizes
from onehop.errors import ArgumentError, FileFormatError, StorageError, integer
from onehop.graph import folder as folders
from onehop.graph.array_file import ArrayFile
from onehop.graph.graph import StoredGraph
from onehop.ops.streaming.budget import budget_bytes
from onehop.ops.streaming.lock import alone
from onehop.storage import writing
from onehop.streaming.from_file import load, number
from onehop.streaming.from_file.database import LEAST_BYTES, Database, literal
from onehop.streaming.from_file.number import numbering
from onehop.streaming.from_file.request import IdDtype, Request, WeightDtype

LOGGER = logging.getLogger("onehop")

# Increase this when the data that the steps leave on disk change.
_VERSION = 3


class Work:
    """The folder of intermediate data, with a note of the request to which it belongs.

    Attributes:
        folder: The folder.
        of_use: Whether a later run can continue from it.
    """

    def __init__(self, out: Path, request: Request) -> None:
        self.folder = out.with_name(out.name + ".ingest")
        self._note, self._request = self.folder / "request.json", request
        self._what = self._stamped()
        self.of_use = False

    def __enter__(self) -> Self:
        """Create the folder, unless it exists for the same request; raise a StorageError if that fails."""
        if self.folder.exists():
            if self._noted() == self._what:
                LOGGER.info("%s: going on from what an earlier run has done.", self.folder)
                return self
            LOGGER.warning("%s belongs to another request or another file; it is begun anew.", self.folder)
            self.remove()
        with writing("out", self.folder):
            self.folder.mkdir(parents=True)
            self._note.write_text(json.dumps(self._what))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the folder if no later run can use it; a later run would refuse a bad file too."""
        if not self.of_use or (kind is not None and issubclass(kind, FileFormatError)):
            self.remove()

    def confirm(self) -> None:
        """Raise a FileFormatError if a file was changed after the run began."""
        if self._stamped() != self._what:
            raise FileFormatError(
                f"{self._request.path}: it was written to while it was read. Call again when that is done."
            )

    def note_columns(self, left_out: tuple[str, ...]) -> None:
        """Log a warning with the columns that were not read."""
        if left_out:
            LOGGER.warning(
                "%s: columns that are left out: %s. weight and edge_type (--weight and --type) name "
                "columns to keep.",
                self._request.path,
                ", ".join(left_out),
            )

    def remove(self) -> None:
        """Remove the folder."""
        with writing("out", self.folder):
            shutil.rmtree(self.folder)

    def _noted(self) -> Any:
        try:
            return json.loads(self._note.read_text())
        except (OSError, ValueError):
            return None

    def _stamped(self) -> dict[str, Any]:
        """Return the request with its files' sizes and modification times, as read back from JSON."""
        request = self._request
        stamps = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in request.files()]
        stamped: dict[str, Any] = json.loads(json.dumps([_VERSION, request.as_json(), stamps]))
        return stamped


# The files for tables of ids, and for edge columns other than the sources.
_MAPS = {"nodes": "ids", "sources": "source_ids", "targets": "target_ids", "types": "type_ids"}
_FILES = {"weight": "weight.npy", "kind": "type.npy"}


def store(database: Database, request: Request, out: Path, block: int) -> None:
    """Write the folder, ``block`` edges at a time; it appears when it is complete.

    Raises a StorageError if the disk is full.
    """
    num_src, num_dst = _size(database, request)
    columns = list(database.kinds("SELECT * FROM sorted"))
    (edges,) = database.row("SELECT count(*) FROM sorted")
    _check_room(out, 4 * edges * (len(columns) - 1) + 8 * num_dst)
    dtypes = {"weight": np.dtype(request.weight_dtype), "kind": np.dtype(np.int32)}
    with folders.appearing(out) as beside, ExitStack() as stack:
        rows = stack.enter_context(folders.Rows(beside))
        more = {
            name: stack.enter_context(ArrayFile(beside / _FILES[name], dtypes[name]))
            for name in columns
            if name in _FILES
        }
        reached = 0  # row pointers are written up to this row's
        for begin in range(0, edges, block):
            part = database.arrays(f"SELECT * FROM sorted WHERE rowid >= {begin} AND rowid < {begin + block}")
            reached = _put_pointers(
                rows.pointers, reached, int(part["target"][-1]) + 1, part["target"], begin
            )
            rows.sources.put(part["source"])
            for name, file in more.items():
                file.put(part[name])
            database.progress("storing", min(begin + block, edges) / edges)
        _put_pointers(rows.pointers, reached, num_dst + 1, np.empty(0, np.int32), edges)
        for file in more.values():
            file.finish()
        for table in dict.fromkeys(numbering(request).values()):
            path = literal(str(beside / f"{_MAPS[table]}.parquet"))
            ids = f"SELECT CAST(rowid AS BIGINT) AS number, id FROM {table} ORDER BY number"
            database.run(f"COPY ({ids}) TO {path} (FORMAT parquet)", "storing ids")
        rows.finish(num_src, num_dst, {_FILES[name]: file for name, file in more.items()})


def _put_pointers(file: ArrayFile, first: int, end: int, targets: np.ndarray, place: int) -> int:
    """Write to ``rowptr`` where the edges of rows ``first`` to ``end`` begin; return ``end``.

    The targets, [edges], ascend, and none is below ``first`` - 1. ``first`` is the next row to write, and
    ``place`` is the number of the first of these edges.
    """
    for begin in range(first, end, folders.PIECE):
        rows = np.arange(begin, min(begin + folders.PIECE, end))
        file.put(place + np.searchsorted(targets, rows))
    return max(first, end)


def _size(database: Database, request: Request) -> tuple[int, int]:
    if request.nodes is not None:
        return request.nodes
    names = ("sources", "targets") if request.bipartite else ("nodes", "nodes")
    src, dst = (int(database.row(f"SELECT count(*) FROM {name}")[0]) for name in names)
    return src, dst


def _check_room(out: Path, size: int) -> None:
    free = shutil.disk_usage(out.parent).free
    if free < size:
        raise StorageError(
            f"out: {out} needs {sizes.readable(size)} and its disk has {sizes.readable(free)} left. Make "
            "room and call again: what is done is kept."
        )


# Share of the budget for DuckDB; the rest is for blocks of edges as arrays and while they are passed on.
_DATABASE = 0.75
_BLOCK_BYTES = 128  # bytes per edge in a block
_MOST_BLOCK = 1 << 21


def ingest(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    source: str | None = None,
    target: str | None = None,
    weight: str | os.PathLike[str] | None = None,
    edge_type: str | os.PathLike[str] | None = None,
    nodes: SupportsIndex | Sequence[SupportsIndex] | None = None,
    bipartite: bool = False,
    text_ids: bool = False,
    delimiter: str | None = None,
    header: bool | None = None,
    dtype: IdDtype = "int64",
    weight_dtype: WeightDtype = "float32",
    memory: SupportsIndex | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> StoredGraph:
    r"""Converts a file of edges to a graph on disk; the file may be larger than memory.

    DuckDB (extra ``ingest``) reads, numbers and sorts, with torch's number of threads. Edges of a destination
    stay in the file's order. The folder contains the graph for ``Graph.open``; ``weight.npy`` [E] and
    ``type.npy`` [E], int32, if the file has weights or types, in the order of the stored edges; and the
    numbers of ids: ``ids.parquet`` (``source_ids`` and ``target_ids`` with ``bipartite``) and
    ``type_ids.parquet``, with columns ``number`` and ``id``. Ids are numbered in ascending order; text is
    ordered by its UTF-8 bytes.

    An interrupted run resumes after its last finished step (reading, numbering, sorting) when it is called
    again with the same arguments and the same file. Only one run at a time can write a folder.

    Args:
        path: A file that ends in .parquet or .pq, or a folder with only such files; .csv, .tsv or .txt,
            optionally with .gz; .npy, integers [2, E] (row 0 has the sources) or [E, 2]; or .bin, raw pairs
            of source and destination.
        out: The folder to create. Intermediate data are stored next to it in ``out.ingest``.
        source: The column of sources; None means the column called source, src or from, or the first column
            if columns have no names.
        target: The column of destinations; None means the column called target, dst or to, or the second
            column.
        weight: The column of weights; for .npy and .bin, a .npy file of [E]. None means no weights.
        edge_type: The column of types, integers or text, which are numbered in the same way as ids; for .npy
            and .bin, a .npy file of [E]. None means no types.
        nodes: The number of nodes, or (num_src, num_dst), if ids already are node numbers. They then stay
            unchanged, and nodes without edges are included. None means that all ids of the file are numbered.
        bipartite: Whether sources and destinations are numbered separately.
        text_ids: Whether ids are read as text, so that leading zeros count and any column type is accepted.
            Otherwise the first edge of a text file decides: if its ids are integers, all ids must be.
        delimiter: The text between columns of a text file: one or more characters, or ``\s+`` for runs of
            blanks. None means the delimiter of the file name's ending: a comma for .csv, a tab for .tsv, runs
            of blanks for .txt.
        header: Whether the first line of a text file names the columns. None means that it does if it has all
            names that are given, or recognised names for both ends, and that it does not if it contains a
            number; any other first line is refused.
        dtype: Dtype of the numbers in a .bin file: int32, int64, uint32 or uint64, in this machine's byte
            order.
        weight_dtype: Dtype of the stored weights: float32 or float64. A weight that is too large for it is
            refused.
        memory: Memory budget in bytes; None means six tenths of what this process may still use.
        progress: Called with the current step and its finished share, 0 to 1; some calls come from another
            thread.

    Raises:
        ArgumentError: An argument has the wrong value, a column is missing, or ``memory`` is too little.
        ConfigurationError: DuckDB is not installed.
        FileFormatError: The file cannot be read, lacks values, or has values of another kind than its first
            value.
        FileNotFoundError: The file does not exist.
        IndexRangeError: A node number is not below ``nodes``.
        StorageError: The disk is full, or another run writes the same folder.

    Examples:
        >>> import numpy, onehop, tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     numpy.save(f"{folder}/edges.npy", [[0, 0, 1], [1, 2, 2]])  # sources above destinations
        ...     _ = onehop.ingest(f"{folder}/edges.npy", f"{folder}/graph")
        ...     graph = onehop.Graph.open(f"{folder}/graph").load()  # a small one; a large one stays on disk
        >>> onehop.aggregate(graph, torch.tensor([[1.0], [10.0], [5.0]])).flatten().tolist()
        [0.0, 1.0, 11.0]
    """
    goal, is_pair = Path(out), isinstance(nodes, Sequence) or getattr(nodes, "shape", ()) == (2,)
    pair = None if nodes is None else _pair(nodes if is_pair else (nodes, nodes))
    request = Request(
        path=Path(path),
        source=source,
        target=target,
        weight=None if weight is None else os.fspath(weight),
        edge_type=None if edge_type is None else os.fspath(edge_type),
        nodes=pair,
        bipartite=bipartite,
        text_ids=text_ids,
        delimiter=delimiter,
        header=header,
        dtype=dtype,
        weight_dtype=weight_dtype,
        one_set=not (bipartite or is_pair),
    )
    request.check()
    budget = budget_bytes(memory)
    for_database = int(budget * _DATABASE)
    least = LEAST_BYTES * native.threads()
    if for_database < least:
        raise ArgumentError(
            f"memory: expected {sizes.readable(least / _DATABASE)} or more for {native.threads()} threads, "
            f"got {sizes.readable(budget)}."
        )
    block = min(int(budget * (1 - _DATABASE)) // _BLOCK_BYTES, _MOST_BLOCK)
    with writing("out", goal):
        exists = goal.exists()
    if exists:
        raise ArgumentError(f"out: {goal} exists; remove it or give another name.")
    with alone(goal) as lock, Work(goal, request) as work:
        report = progress or _silent
        with Database(work.folder, request.path, for_database, native.threads(), report) as database:
            there = database.tables()
            work.of_use = bool(there)
            if "sorted" not in there:
                if "edges" not in there:
                    work.note_columns(load.load(database, request, work.folder, block))
                    work.confirm()
                work.of_use = True
                number.number(database, request)
                number.sort(database, request)
            store(database, request, goal, block)
        lock.confirm()
        work.of_use = False
    return StoredGraph.open(goal)


def _pair(nodes: Any) -> tuple[int, int]:
    if isinstance(nodes, str) or len(nodes) != 2:
        raise ArgumentError(f"nodes: expected a number, or (num_src, num_dst), got {nodes!r}.")
    src, dst = (integer("nodes", each, None) for each in nodes)
    return src, dst


def _silent(what: str, done: float) -> None:
    """Ignore progress."""
