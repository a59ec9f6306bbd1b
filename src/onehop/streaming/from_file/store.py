"""The last step: the sorted table becomes a stored graph, its weights, its types and its maps of ids."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from onehop import sizes
from onehop.errors import StorageError
from onehop.graph import folder as folders
from onehop.graph.array_file import ArrayFile
from onehop.streaming.from_file.database import Database, literal
from onehop.streaming.from_file.number import numbering
from onehop.streaming.from_file.request import Request

# The files of a table of ids, and of the columns beside the sources.
_MAPS = {"nodes": "ids", "sources": "source_ids", "targets": "target_ids", "types": "type_ids"}
_FILES = {"weight": "weight.npy", "kind": "type.npy"}


def store(database: Database, request: Request, out: Path, block: int) -> None:
    """Writes the folder, ``block`` edges at a time; it appears when it is whole.

    Raises:
        StorageError: The disk is full.
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
        reached = 0  # pointers are written up to that of this row
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
    """Writes where the edges of rows ``first`` to ``end`` begin; returns ``end``.

    Args:
        file: ``rowptr``.
        first: The row that is next.
        end: One more than the last row to be written.
        targets: [edges], ascending: none is below ``first`` - 1.
        place: The number of the first of these edges.
    """
    for begin in range(first, end, folders.PIECE):
        wanted = np.arange(begin, min(begin + folders.PIECE, end))
        file.put(place + np.searchsorted(targets, wanted))
    return max(first, end)


def _size(database: Database, request: Request) -> tuple[int, int]:
    if request.nodes is not None:
        return request.nodes
    names = ("sources", "targets") if request.bipartite else ("nodes", "nodes")
    src, dst = (int(database.row(f"SELECT count(*) FROM {name}")[0]) for name in names)
    return src, dst


def _check_room(out: Path, wanted: int) -> None:
    free = shutil.disk_usage(out.parent).free
    if free < wanted:
        raise StorageError(
            f"out: {out} needs {sizes.told(wanted)} and its disk has {sizes.told(free)} left. Make room and "
            "call again: what is done is kept."
        )
