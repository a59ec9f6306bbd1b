"""The first step: the edges of a file as a table, in the file's order, checked for gaps and ranges."""

import gzip
import zlib
from dataclasses import replace
from glob import escape
from pathlib import Path

from onehop.errors import FileFormatError, IndexRangeError
from onehop.streaming.from_file import arrays, columns
from onehop.streaming.from_file.database import Database, literal, quoted
from onehop.streaming.from_file.request import ARRAYS, PARQUET, TEXT, Request

ENDS = ("source", "target")
_WEIGHT_KINDS = {"float32": "FLOAT", "float64": "DOUBLE"}
_WORDS = {"source": "source", "target": "destination", "weight": "weight", "kind": "type"}


def load(database: Database, request: Request, block: int) -> tuple[str, ...]:
    """Makes the table ``edges`` (source, target, weight if any, kind if any).

    Args:
        database: The database; it has no such table.
        request: The request.
        block: Of an array, so many edges are in memory at once.

    Returns:
        The columns of the file that are left out.

    Raises:
        ArgumentError: A column that was named is missing.
        FileFormatError: The file cannot be read, or lacks a value.
        IndexRangeError: A node number lies outside the graph.
    """
    with database.whole():
        if request.ending in ARRAYS:
            arrays.load(database, request, block)
            left_out: tuple[str, ...] = ()
        else:
            left_out = _load_table(database, request)
        _check(database, request)
    return left_out


def _load_table(database: Database, request: Request) -> tuple[str, ...]:
    relation = _relation(request, None)
    kinds = database.kinds(f"SELECT * FROM {relation}")
    if len(kinds) == 1 and request.ending in TEXT and request.delimiter is None:
        # DuckDB itself does not try a blank, which stands between the columns of many lists of edges.
        request = replace(request, delimiter=" ")
        relation = _relation(request, None)
        kinds = database.kinds(f"SELECT * FROM {relation}")
    found = columns.choose(request, kinds)
    if request.text_ids:
        # What was taken for numbers on the way has lost its leading zeros.
        relation = _relation(request, found)
    picked = [f"{_id(name, request)} AS {which}" for name, which in zip(found[:2], ENDS, strict=True)]
    if found.weight is not None:
        picked.append(f"CAST({quoted(found.weight)} AS {_WEIGHT_KINDS[request.weight_dtype]}) AS weight")
    if found.edge_type is not None:
        picked.append(f"{quoted(found.edge_type)} AS kind")
    database.run(f"CREATE TABLE edges AS SELECT {', '.join(picked)} FROM {relation}", "reading")
    return found.left_out


def _id(name: str, request: Request) -> str:
    return f"CAST({quoted(name)} AS VARCHAR)" if request.text_ids else quoted(name)


def _relation(request: Request, text: columns.Columns | None) -> str:
    # Brackets and stars in a name are no pattern.
    path = literal(escape(str(request.path)))
    if request.ending in PARQUET:
        return f"read_parquet({path})"
    # DuckDB itself would skip first lines that are unlike the others, and take a sign for that of comments.
    options = ["strict_mode = true", "comment = ''", f"skip = {_lines_of_comments(request.path)}"]
    if request.delimiter is not None:
        options.append(f"delim = {literal(request.delimiter)}")
    if request.header is not None:
        options.append(f"header = {str(request.header).lower()}")
    if text is not None:
        kinds = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in sorted({text.source, text.target}))
        options.append(f"types = {{{kinds}}}")
    return f"read_csv({path}, {', '.join(options)})"


def _lines_of_comments(path: Path) -> int:
    """The number of lines before the first one that is neither blank nor a comment (# or %)."""
    count = 0
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        try:
            for line in file:
                if line.strip() and not line.startswith((b"#", b"%")):
                    return count
                count += 1
        except (OSError, EOFError, zlib.error) as error:
            raise FileFormatError(f"{path}: cannot be read ({error}). Copy it again.") from error
    raise FileFormatError(f"{path}: the file is empty, or has comments alone.")


def _check(database: Database, request: Request) -> None:
    """Looks for missing values, and for numbers that lie outside the graph."""
    names = list(database.kinds("SELECT * FROM edges"))
    counts = database.row(f"SELECT count(*), {', '.join(f'count({name})' for name in names)} FROM edges")
    for name, count in zip(names, counts[1:], strict=True):
        if count < counts[0]:
            # Row numbers do not begin at 0 before a table is committed.
            (place,) = database.row(
                f"SELECT min(rowid) - (SELECT min(rowid) FROM edges) FROM edges WHERE {name} IS NULL"
            )
            raise FileFormatError(
                f"{request.path}: {counts[0] - count} of {counts[0]} edges have no {_WORDS[name]}, the first "
                f"of them edge {place}, counted from 0. Fill them or leave these edges out."
            )
    if request.nodes is not None:
        for end, count in zip(ENDS, request.nodes, strict=True):
            least, most = database.row(f"SELECT min({end}), max({end}) FROM edges")
            if least is not None and not 0 <= least <= most < count:
                raise IndexRangeError(
                    f"nodes: {request.path} has {end} numbers from {least} to {most}, and {count} nodes "
                    f"allow 0 to {count - 1}. Give more nodes, or leave nodes out to have ids of any "
                    "kind numbered."
                )
