"""The first step: the edges of a file as a table, in the file's order, with every value checked."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from itertools import islice
from pathlib import Path

import numpy as np

from onehop.errors import FileFormatError, IndexRangeError
from onehop.streaming.from_file import arrays, text
from onehop.streaming.from_file.columns import (
    DECIMAL,
    INTEGER,
    WEIGHT,
    Columns,
    check_kinds,
    choose,
    wider_weights,
)
from onehop.streaming.from_file.database import Database, Unreadable, literal, quoted
from onehop.streaming.from_file.request import ARRAYS, PARQUET, Request

LOGGER = logging.getLogger("onehop")

ENDS = ("source", "target")
_WORDS = {"source": "source", "target": "destination", "weight": "weight", "kind": "type"}
_WEIGHT_KINDS = {"float32": "FLOAT", "float64": "DOUBLE"}
# Further options of DuckDB's text reader; tests make its buffers small.
_OPTIONS: tuple[str, ...] = ()
# Number of records that are passed to DuckDB at once.
_RECORDS = 1 << 17


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that is missing, or is not of its column's kind.

    Attributes:
        which: The column of the table ``edges`` with the value.
        place: Number of the value's edge, counted from 0.
        count: Number of missing or wrong values in the column.
        total: Number of edges.
    """

    which: str
    place: int
    count: int
    total: int


def load(database: Database, request: Request, folder: Path, block: int) -> tuple[str, ...]:
    """Create the table ``edges`` (source, target, optionally weight and kind); return the ignored columns.

    A compressed file is decompressed into ``folder``. For an array file, ``block`` edges are in memory at
    once.

    Raises:
        ArgumentError: A column that was given is missing.
        FileFormatError: The file cannot be read, or a value is missing or not of its column's kind.
        IndexRangeError: A node number is not in the graph.
    """
    if request.ending in ARRAYS:
        with database.whole():
            arrays.load(database, request, block)
            _check_range(database, request, lambda place: f", edge {place} counted from 0")
        return ()
    if request.ending in PARQUET:
        with database.whole():
            return _load_parquet(database, request)
    file = text.opened(request, folder)
    content = text.looked_through(file, lambda done: database.progress("checking", done))
    roles = choose(request, file.names)
    try:
        with database.whole():
            _load_text(database, request, file, content, roles)
    except Unreadable as error:
        if content.exact:
            raise
        LOGGER.info("%s: DuckDB cannot read it (%s); it is read record by record.", request.path, error)
        with database.whole():
            _load_text(database, request, file, content._replace(exact=True), roles)
    return roles.left_out


def _load_parquet(database: Database, request: Request) -> tuple[str, ...]:
    relations = [_parquet([part]) for part in request.parts]
    kinds, *others = (database.kinds(f"SELECT * FROM {each}") for each in relations)
    for part, other in zip(request.parts[1:], others, strict=True):
        if other != kinds:
            raise FileFormatError(
                f"{part}: expected the columns of {request.parts[0].name}, {_listing(kinds)}, got "
                f"{_listing(other)}. Write the files of a table alike."
            )
    relation = _parquet(request.parts)
    roles = choose(request, list(kinds))
    check_kinds(request, kinds, roles)
    names = _names(roles)
    picked = {which: quoted(name) for which, name in names.items()}
    if request.text_ids:
        picked |= {which: f"CAST({picked[which]} AS VARCHAR)" for which in ENDS}
    if roles.weight is not None:
        picked["weight"] = f"TRY_CAST({picked['weight']} AS {_WEIGHT_KINDS[request.weight_dtype]})"
    _create(database, picked, relation)
    fault = _fault(database)
    if fault is not None:
        name = names[fault.which]
        (value,) = database.row(f"SELECT {quoted(name)} FROM {relation} LIMIT 1 OFFSET {fault.place}")
        raise _refusal(request, fault, _row(database, request, relations, fault.place), name, value)
    _check_range(database, request, lambda place: _row(database, request, relations, place))
    return roles.left_out


def _parquet(paths: Sequence[Path]) -> str:
    # Brackets and stars in a file name are escaped, so that DuckDB does not read them as a pattern.
    return f"read_parquet([{', '.join(literal(escape(str(path))) for path in paths)}])"


def _listing(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} {kind}" for name, kind in kinds.items())


def _row(database: Database, request: Request, relations: Sequence[str], place: int) -> str:
    """Return the position of an edge as text: its row and, if the input is a folder, its file."""
    if not request.path.is_dir():
        return f", row {place} counted from 0"
    counts = [database.row(f"SELECT count(*) FROM {each}")[0] for each in relations]
    part = int(np.searchsorted(np.cumsum(counts), place, side="right"))
    return f", {request.parts[part].name}, row {place - sum(counts[:part])} counted from 0"


def _load_text(
    database: Database, request: Request, file: text.TextFile, content: text.Content, roles: Columns
) -> None:
    """Read values as text and convert them strictly to the kinds that the first edge's values have."""
    names = _names(roles)
    places = {which: file.names.index(name) for which, name in names.items()}
    first = {which: None if file.first is None else file.first[place] for which, place in places.items()}
    kinds = _kinds(request, first, file.skipped + 1)
    listed = content.exact or file.first is None
    relation = _listed(database, file, places) if listed else _parsed(file, content)
    while True:
        picked = {
            which: _converted(which, f"c{places[which]}", kind, content) for which, kind in kinds.items()
        }
        _create(database, picked, relation)
        fault = _fault(database)
        if fault is None:
            break
        line, fields = _record(file, fault.place)
        value = fields[places[fault.which]]
        wider = _wider(kinds[fault.which], fault.which, value)
        if wider is None:
            raise _refusal(request, fault, f", line {line}", names[fault.which], value or None)
        kinds[fault.which] = wider
        database.run("DROP TABLE edges")
    _check_range(database, request, lambda place: f", line {_record(file, place)[0]}")
    database.run("DROP TABLE IF EXISTS records")


def _names(roles: Columns) -> dict[str, str]:
    """Return the columns of ``edges``, each with the name of the file's column."""
    names = {"source": roles.source, "target": roles.target, "weight": roles.weight, "kind": roles.edge_type}
    return {which: name for which, name in names.items() if name is not None}


def _parsed(file: text.TextFile, content: text.Content) -> str:
    """Return the relation of all columns as text, parsed by DuckDB; one thread if lines may end in quotes."""
    mark = "'\"'" if content.quotes else "''"
    kinds = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(file.names)))
    options = (
        *(literal(escape(str(file.path))), "auto_detect = false", "header = false", f"skip = {file.skipped}"),
        *(f"delim = {literal(content.delimiter)}", f"quote = {mark}", f"escape = {mark}", "comment = ''"),
        *(f"columns = {{{kinds}}}", "strict_mode = true", f"parallel = {str(not content.quotes).lower()}"),
    )
    return f"read_csv({', '.join((*options, *_OPTIONS))})"


def _listed(database: Database, file: text.TextFile, places: Mapping[str, int]) -> str:
    """Return the relation of the columns that are read, parsed by Python record by record."""
    numbers = sorted(set(places.values()))
    database.run(f"CREATE TABLE records ({', '.join(f'c{place} VARCHAR' for place in numbers)})")
    columns: list[list[str | None]] = [[] for _ in numbers]

    def hand_over() -> None:
        database.append(
            "records", {f"c{p}": np.array(c, object) for p, c in zip(numbers, columns, strict=True)}
        )
        for column in columns:
            column.clear()

    for line, fields in file.edges():
        for place, column in zip(numbers, columns, strict=True):
            field = fields[place]
            if not (field.isascii() or _is_unicode(field)):
                raise FileFormatError(
                    f"{file.name}, line {line}, column {file.names[place]!r}: expected UTF-8, got {field!r}. "
                    "Save the file as UTF-8."
                )
            column.append(field or None)
        if len(columns[0]) == _RECORDS:
            hand_over()
    if columns[0]:
        hand_over()
    return "records"


def _is_unicode(field: str) -> bool:
    try:
        field.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kinds(request: Request, first: Mapping[str, str | None], line: int) -> dict[str, str]:
    """Return DuckDB's type of each column, from the first edge's values (None without edges) and its line.

    Raises a FileFormatError if one end of the first edge is a number, the other is text, although they name
    the same kind of nodes.
    """
    kinds = {}
    for which, value in first.items():
        if which == "weight":
            kinds[which] = _WEIGHT_KINDS[request.weight_dtype]
        elif which in ENDS and request.text_ids:
            kinds[which] = "VARCHAR"
        else:
            # A decimal number does not count as text either, so that it will be refused.
            number = (
                not value or re.fullmatch(DECIMAL, value) or (which in ENDS and request.nodes is not None)
            )
            kinds[which] = "BIGINT" if number else "VARCHAR"
    if kinds["source"] != kinds["target"] and not request.bipartite:
        raise FileFormatError(
            f"{request.path}, line {line}: the first edge is from {first['source']!r} to "
            f"{first['target']!r}: a number and text. Give text_ids=True (--text-ids) if both name the same "
            "nodes, bipartite=True (--bipartite) if they do not."
        )
    return kinds


def _wider(kind: str, which: str, value: str) -> str | None:
    """Return the type that holds a value which its column's type cannot hold; None if there is none."""
    if kind == "BIGINT" and re.fullmatch(INTEGER, value):
        return "HUGEINT"
    if which == "kind" and kind != "VARCHAR" and value:
        return "VARCHAR"
    return None


def _converted(which: str, column: str, kind: str, content: text.Content) -> str:
    """Return the query expression for a column's values, NULL for a value that is not of the kind.

    DuckDB casts 1_0 to numbers, and 1.6, 1e3, 0x10 and 1_0 to integers. If the file has no text of this form,
    DuckDB's casts are strict.
    """
    if kind == "VARCHAR":
        return column
    cast, strict = f"TRY_CAST({column} AS {kind})", ""
    if which == "weight":
        cast = f"TRY_CAST(TRY_CAST({column} AS DOUBLE) AS {kind})"
        # An infinite value with digits in its text is a number that is too large.
        strict = f"NOT (isinf({cast}) AND regexp_matches({column}, '[0-9]'))"
        if content.underscores:
            strict += f" AND {_matches(column, WEIGHT)}"
    elif content.letters:
        strict = f"CAST({cast} AS VARCHAR) = {column} OR {_matches(column, INTEGER)}"
    elif content.points:
        strict = f"NOT contains({column}, '.')"
    return f"CASE WHEN {strict} THEN {cast} END" if strict else cast


def _matches(column: str, pattern: str) -> str:
    return f"regexp_full_match({column}, {literal(pattern)})"


def _create(database: Database, picked: Mapping[str, str], relation: str) -> None:
    values = ", ".join(f"{value} AS {which}" for which, value in picked.items())
    database.run(f"CREATE TABLE edges AS SELECT {values} FROM {relation}", "reading")


def _fault(database: Database) -> Fault | None:
    """Return the first value that is NULL."""
    names = list(database.kinds("SELECT * FROM edges"))
    total, *counts = database.row(
        f"SELECT count(*), {', '.join(f'count({name})' for name in names)} FROM edges"
    )
    faults = [
        Fault(name, _place(database, f"{name} IS NULL"), total - count, total)
        for name, count in zip(names, counts, strict=True)
        if count < total
    ]
    return min(faults, key=lambda fault: fault.place, default=None)


def _place(database: Database, condition: str) -> int:
    """Return the first edge for which a condition is true."""
    # Before a table is committed, row numbers do not begin at 0.
    (place,) = database.row(
        f"SELECT min(rowid) - (SELECT min(rowid) FROM edges) FROM edges WHERE {condition}"
    )
    return int(place)


def _record(file: text.TextFile, place: int) -> tuple[int, list[str]]:
    return next(islice(file.edges(), place, None))


def _refusal(request: Request, fault: Fault, where: str, name: str, value: object) -> FileFormatError:
    """Return the error for a value; None means that the value is missing."""
    which = f"{request.path}{where}, column {name!r} ({_WORDS[fault.which]})"
    many = f"as in {fault.count} of {fault.total} edges"
    if value is None:
        return FileFormatError(
            f"{which}: expected a value, got none, {many}. Fill them in or remove these edges."
        )
    expected, advice = "an integer of at most 64 bits, as the first", ""
    if fault.which == "weight":
        expected, advice = f"a number that {request.weight_dtype} holds", wider_weights(request, value)
    elif request.nodes is None:
        advice = ", or give text_ids=True (--text-ids) to take ids of any kind as text"
    return FileFormatError(f"{which}: expected {expected}, got {value!r}, {many}. Correct them{advice}.")


def _check_range(database: Database, request: Request, where: Callable[[int], str]) -> None:
    """Check that all node numbers are in the graph."""
    for end, count in zip(ENDS, request.nodes or (), strict=False):
        least, most = database.row(f"SELECT min({end}), max({end}) FROM edges")
        if least is not None and not 0 <= least <= most < count:
            place = _place(database, f"{end} NOT BETWEEN 0 AND {count - 1}")
            raise IndexRangeError(
                f"nodes: {request.path}{where(place)}: the {_WORDS[end]} is not in the graph; {end} numbers "
                f"are from {least} to {most}, and {count} nodes allow 0 to {count - 1}. Give more nodes, or "
                "omit nodes (--nodes) to have ids of any kind numbered."
            )
