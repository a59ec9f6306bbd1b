"""The columns of a table that hold the edges: columns that were given, or that have recognised names."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from onehop.errors import ArgumentError, FileFormatError
from onehop.streaming.from_file.request import Request

# Recognised names: letters and digits only, in lower case. The Stanford collection writes FromNodeId and
# ToNodeId.
_NAMES = {
    "source": ("source", "src", "from", "sourceid", "srcid", "fromnodeid"),
    "target": ("target", "dst", "dest", "destination", "to", "targetid", "dstid", "tonodeid"),
}
_UNNAMED = re.compile(r"column\d+")
_INTEGERS = frozenset(
    sign + kind for sign in ("", "U") for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
_NUMBERS = _INTEGERS | {"FLOAT", "DOUBLE", "BOOLEAN"}

# Patterns of integers, decimal numbers and weights in a text file, for both Python's re and DuckDB.
_SPACE = r"[ \t\n\v\f\r]*"
INTEGER = f"{_SPACE}[+-]?[0-9]+{_SPACE}"
_DIGITS = "([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?"
DECIMAL = f"{_SPACE}[+-]?{_DIGITS}{_SPACE}"
WEIGHT = f"{_SPACE}[+-]?({_DIGITS}|[nN][aA][nN]|[iI][nN][fF]([iI][nN][iI][tT][yY])?){_SPACE}"


class Columns(NamedTuple):
    """Names of the columns that are read (None for a missing one), and of the ignored columns."""

    source: str
    target: str
    weight: str | None
    edge_type: str | None
    left_out: tuple[str, ...]


def is_header(request: Request, line: int, fields: Sequence[str]) -> bool:
    """Return whether the first record of a text file names its columns.

    It is a header if it has all column names that were given, or recognised names for both ends. A record
    with a number is an edge. Raises a FileFormatError if it may be either.
    """
    if request.header is not None:
        return request.header
    names = [field.strip() for field in fields]
    named = [
        name
        for name in (request.source, request.target, request.weight, request.edge_type)
        if name is not None
    ]
    if (named and set(named) <= set(names)) or all(_telling(which, names) for which in _NAMES):
        return True
    if any(re.fullmatch(DECIMAL, field) for field in fields):
        return False
    raise FileFormatError(
        f"{request.path}, line {line}: {_text(fields)} may be an edge or the names of the columns. Give "
        "header=False (--no-header) if it is an edge; if not, name the columns of sources and destinations "
        "with source and target (--source, --target)."
    )


def choose(request: Request, names: Sequence[str]) -> Columns:
    """Choose the columns to read from a table with these column names.

    Raises:
        ArgumentError: A column that was given is missing, or no column has a recognised name.
        FileFormatError: There are fewer than two columns.
    """
    if len(names) < 2:
        raise FileFormatError(
            f"{request.path}: expected a column of sources and one of destinations, got {_text(names)}."
        )
    plain = all(_UNNAMED.fullmatch(name) for name in names)
    source, target = (
        _end(request, which, column, names, names[place] if plain else None)
        for place, (which, column) in enumerate((("source", request.source), ("target", request.target)))
    )
    for which, column in (("weight", request.weight), ("edge_type", request.edge_type)):
        if column is not None:
            _look(request.path, which, column, names)
    read = (source, target, request.weight, request.edge_type)
    return Columns(*read, tuple(name for name in names if name not in read))


def _telling(which: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if re.sub("[^a-z0-9]", "", name.lower()) in _NAMES[which]]


def _end(request: Request, which: str, column: str | None, names: Sequence[str], plain: str | None) -> str:
    if column is not None:
        return _look(request.path, which, column, names)
    telling = _telling(which, names)
    if len(telling) == 1:
        return telling[0]
    if plain is not None:
        return plain
    why = "several columns could be meant" if telling else f"no column is called {_text(_NAMES[which][:3])}"
    raise ArgumentError(f"{which}: {why} in {request.path}, which has {_text(names)}. Name one of them.")


def _look(path: Path, which: str, name: str, names: Sequence[str]) -> str:
    if list(names).count(name) != 1:
        problem = (
            f"several columns {name!r}" if name in names else f"no column {name!r}; it has {_text(names)}"
        )
        raise ArgumentError(f"{which}: {path} has {problem}.")
    return name


def check_kinds(request: Request, kinds: dict[str, str], roles: Columns) -> None:
    """Check DuckDB's types of a Parquet file's columns; raise a FileFormatError for an unusable type."""
    for which, name in (("source", roles.source), ("target", roles.target), ("edge_type", roles.edge_type)):
        if name is None or (request.text_ids and which != "edge_type"):
            continue
        kind = kinds[name]
        if kind not in _INTEGERS and (kind != "VARCHAR" or request.nodes is not None):
            expected = "integers" if request.nodes is not None else "integers or text"
            advice = "" if request.nodes is not None else " Give text_ids to take ids of any kind as text."
            raise FileFormatError(
                f"{request.path}: column {name!r} ({which}) has the type {kind}; expected {expected}.{advice}"
            )
    if not request.bipartite and not request.text_ids:
        source, target = (kinds[name] in _INTEGERS for name in (roles.source, roles.target))
        if source != target:
            raise FileFormatError(
                f"{request.path}: column {roles.source!r} has the type {kinds[roles.source]}, and "
                f"{roles.target!r} {kinds[roles.target]}. Give text_ids if both name the same nodes, "
                "bipartite if they do not."
            )
    if roles.weight is not None and not _is_number(kinds[roles.weight]):
        raise FileFormatError(
            f"{request.path}: column {roles.weight!r} (weight) has the type {kinds[roles.weight]}; expected "
            "numbers."
        )


def wider_weights(request: Request, value: object) -> str:
    """Return the advice to store weights in double precision, if this would hold a refused weight."""
    is_number = not isinstance(value, str) or re.fullmatch(WEIGHT, value)
    if request.weight_dtype == "float32" and is_number and math.isfinite(float(value)):  # type: ignore[arg-type]
        return ", or give weight_dtype='float64' (--weight-dtype)"
    return ""


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or kind.startswith("DECIMAL")


def _text(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) if names else "none"
