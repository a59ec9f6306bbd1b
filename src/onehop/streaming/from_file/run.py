"""The ingest: four steps, each of which is done or not when a run is interrupted."""

import os
from collections.abc import Callable
from pathlib import Path

from onehop import native, sizes
from onehop.errors import ArgumentError
from onehop.graph.graph import StoredGraph
from onehop.ops.streaming.budget import default_bytes
from onehop.ops.streaming.lock import alone
from onehop.storage import writing
from onehop.streaming.from_file import load, number, store
from onehop.streaming.from_file.database import LEAST_BYTES, Database
from onehop.streaming.from_file.request import Request
from onehop.streaming.from_file.work import working

# Of the budget, for DuckDB; the rest is for blocks of edges, as arrays and on their way between the two.
_DATABASE = 0.75
_BLOCK_BYTES = 128  # of an edge in a block
_MOST_BLOCK = 1 << 21


def ingest(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    source: str | None = None,
    target: str | None = None,
    weight: str | os.PathLike[str] | None = None,
    edge_type: str | os.PathLike[str] | None = None,
    nodes: int | tuple[int, int] | None = None,
    bipartite: bool = False,
    text_ids: bool = False,
    delimiter: str | None = None,
    header: bool | None = None,
    dtype: str = "int64",
    weight_dtype: str = "float32",
    memory: int | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> StoredGraph:
    r"""Makes a graph on disk of a file of edges that need not fit into memory.

    DuckDB (extra ``ingest``) reads, numbers and sorts, in torch's number of threads. Edges of a destination
    stay in the file's order. The folder holds the graph that ``Graph.open`` opens, ``weight.npy`` [E] and
    ``type.npy`` [E], int32, if there are any, in the order of the stored edges, and the numbers of ids:
    ``ids.parquet`` (``source_ids`` and ``target_ids`` with ``bipartite``) and ``type_ids.parquet``, with
    columns ``number`` and ``id``. Ids are numbered in ascending order, text by its UTF-8 bytes.

    A run that was interrupted goes on after the last step that was done (reading, numbering, sorting) when it
    is called again with the same arguments and the same file. One run at a time writes a folder.

    Args:
        path: A file that ends in .parquet or .pq; .csv, .tsv or .txt, perhaps with .gz; .npy, [2, E] integers
            (sources above destinations) or [E, 2]; or .bin, raw pairs, sources first.
        out: The folder to make. Data on the way are kept in ``out.ingest`` beside it.
        source: The column of sources; None means the one called source, src or from, or the first of columns
            without names.
        target: The column of destinations; None means the one called target, dst or to, or the second.
        weight: The column of weights; for .npy and .bin a .npy file of [E]. None means that none are kept.
        edge_type: The column of types, integers or text, which are numbered as ids are; likewise.
        nodes: The number of nodes, or (num_src, num_dst), if ids are node numbers already: then they stay as
            they are, and nodes without edges are nodes too. None means that all ids of the file are numbered.
        bipartite: Whether sources and destinations are numbered apart.
        text_ids: Whether ids are taken as text: leading zeros count, and any type will do. Otherwise the
            first edge of a text file decides: where its ids are integers, all must be.
        delimiter: Between the columns of a text file: one character or more, or ``\s+`` for runs of blanks.
            None means that of the name's ending: a comma for .csv, a tab for .tsv, runs of blanks for .txt.
        header: Whether the first line of a text file names the columns. None means that it does if it holds
            all names that are given, or telling names of both ends, and does not if it holds a number; any
            other first line is refused.
        dtype: Of the numbers of a .bin file: int32, int64, uint32 or uint64, in this machine's byte order.
        weight_dtype: Of the stored weights: float32 or float64.
        memory: Bytes; None means six tenths of what this process may still take.
        progress: Told the step that is being done, and how much of it is done, 0 to 1; some calls come from
            another thread.

    Raises:
        ArgumentError: An argument has the wrong value, a column is missing, or ``memory`` is too little.
        ConfigurationError: DuckDB is not installed.
        FileFormatError: The file cannot be read, lacks values, or has values of another kind than the first.
        FileNotFoundError: There is no such file.
        IndexRangeError: A node number is not below ``nodes``.
        StorageError: The disk is full, or another run writes the same folder.
    """
    goal, pair = Path(out), (nodes, nodes) if isinstance(nodes, int) else nodes
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
    )
    request.check()
    budget = default_bytes() if memory is None else memory
    for_database = int(budget * _DATABASE)
    least = LEAST_BYTES * native.threads()
    if for_database < least:
        raise ArgumentError(
            f"memory: expected {sizes.told(least / _DATABASE)} or more for {native.threads()} threads, got "
            f"{sizes.told(budget)}."
        )
    block = min(int(budget * (1 - _DATABASE)) // _BLOCK_BYTES, _MOST_BLOCK)
    with writing("out", goal):
        exists = goal.exists()
    if exists:
        raise ArgumentError(f"out: {goal} exists; remove it or give another name.")
    with alone(goal) as lock, working(goal, request) as work:
        told = progress or _silent
        with Database(work.folder, request.path, for_database, native.threads(), told) as database:
            there = database.tables()
            work.of_use = bool(there)
            if "sorted" not in there:
                if "edges" not in there:
                    work.note_columns(load.load(database, request, work.folder, block))
                    work.confirm()
                work.of_use = True
                number.number(database, request)
                number.sort(database, request)
            store.store(database, request, goal, block)
        lock.confirm()
        work.of_use = False
    return StoredGraph.open(goal)


def _silent(what: str, done: float) -> None:
    """Tells nobody."""
