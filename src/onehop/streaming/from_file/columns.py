"""The columns of a table that hold the edges: those that were named, or that have telling names."""

import re
from typing import NamedTuple

from onehop.errors import ArgumentError, FileFormatError
from onehop.streaming.from_file.request import Request

# Letters and digits of the names, in small letters. The Stanford collection writes FromNodeId and ToNodeId.
_NAMES = {
    "source": ("source", "src", "from", "sourceid", "srcid", "fromnodeid"),
    "target": ("target", "dst", "dest", "destination", "to", "targetid", "dstid", "tonodeid"),
}
_UNNAMED = re.compile(r"column\d+")
_INTEGERS = frozenset(
    sign + kind for sign in ("", "U") for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
_NUMBERS = _INTEGERS | {"FLOAT", "DOUBLE", "BOOLEAN"}


class Columns(NamedTuple):
    """The names of the columns that are read, and those that are not.

    Attributes:
        source: Of the sources.
        target: Of the destinations.
        weight: Of the weights, or None.
        edge_type: Of the types, or None.
        left_out: The other columns.
    """

    source: str
    target: str
    weight: str | None
    edge_type: str | None
    left_out: tuple[str, ...]


def choose(request: Request, kinds: dict[str, str]) -> Columns:
    """The columns of a table.

    Args:
        request: The request.
        kinds: DuckDB's type of each column, in their order.

    Raises:
        ArgumentError: A column that was named is missing, or none has a telling name.
        FileFormatError: There are fewer than two columns, or one has a type that does not serve.
    """
    names = list(kinds)
    if len(names) < 2:
        raise FileFormatError(
            f"{request.path}: expected a column of sources and one of destinations, got {_told(names)}. "
            "If they are there, name what stands between them with delimiter."
        )
    plain = all(_UNNAMED.fullmatch(name) for name in names)
    ends = [
        _end(request, which, given, names, names[place] if plain else None)
        for place, (which, given) in enumerate((("source", request.source), ("target", request.target)))
    ]
    for which, given in (("weight", request.weight), ("edge_type", request.edge_type)):
        if given is not None:
            _look(request, which, given, names)
    found = Columns(ends[0], ends[1], request.weight, request.edge_type, ())
    _check_kinds(request, kinds, found)
    return found._replace(left_out=tuple(name for name in names if name not in found[:4]))


def _end(request: Request, which: str, given: str | None, names: list[str], plain: str | None) -> str:
    if given is not None:
        return _look(request, which, given, names)
    telling = [name for name in names if re.sub("[^a-z0-9]", "", name.lower()) in _NAMES[which]]
    if len(telling) == 1:
        return telling[0]
    if plain is not None:
        return plain
    why = "several columns could be meant" if telling else f"no column is called {_told(_NAMES[which][:3])}"
    raise ArgumentError(f"{which}: {why} in {request.path}, which has {_told(names)}. Name one of them.")


def _look(request: Request, which: str, given: str, names: list[str]) -> str:
    if given not in names:
        raise ArgumentError(f"{which}: {request.path} has no column {given!r}; it has {_told(names)}.")
    return given


def _check_kinds(request: Request, kinds: dict[str, str], found: Columns) -> None:
    for which, name in (("source", found.source), ("target", found.target), ("edge_type", found.edge_type)):
        if name is None or (request.text_ids and which != "edge_type"):
            continue
        kind = kinds[name]
        if kind not in _INTEGERS and (kind != "VARCHAR" or request.nodes is not None):
            wanted = "integers" if request.nodes is not None else "integers or text"
            advice = "" if request.nodes is not None else " Give text_ids to take ids of any kind as text."
            raise FileFormatError(
                f"{request.path}: column {name!r} ({which}) has the type {kind}; expected {wanted}.{advice}"
            )
    if not request.bipartite and not request.text_ids:
        source, target = (kinds[name] in _INTEGERS for name in (found.source, found.target))
        if source != target:
            raise FileFormatError(
                f"{request.path}: column {found.source!r} has the type {kinds[found.source]}, and "
                f"{found.target!r} {kinds[found.target]}. Give text_ids if both name the same nodes, "
                "bipartite if they do not."
            )
    if found.weight is not None and not _is_number(kinds[found.weight]):
        raise FileFormatError(
            f"{request.path}: column {found.weight!r} (weight) has the type {kinds[found.weight]}; expected "
            "numbers."
        )


def _is_number(kind: str) -> bool:
    return kind in _NUMBERS or kind.startswith("DECIMAL")


def _told(names: "list[str] | tuple[str, ...]") -> str:
    return ", ".join(map(repr, names)) if names else "none"
