"""The second and third steps: ids are numbered, and edges are sorted by destination."""

from onehop.errors import FileFormatError
from onehop.graph.build import MOST_NODES
from onehop.streaming.from_file.database import Database
from onehop.streaming.from_file.load import ENDS
from onehop.streaming.from_file.request import Request

# Ranges of the types in which numeric ids are stored; HUGEINT and UHUGEINT have no counterpart elsewhere.
_SIGNED, _UNSIGNED = (-(2**63), 2**63 - 1), (0, 2**64 - 1)


def numbering(request: Request) -> dict[str, str]:
    """Return, for each column of ``edges``, the table of ids by which the column is numbered."""
    tables = {}
    if request.nodes is None:
        names = ("sources", "targets") if request.bipartite else ("nodes", "nodes")
        tables = dict(zip(ENDS, names, strict=True))
    if request.edge_type is not None:
        tables["kind"] = "types"
    return tables


def number(database: Database, request: Request) -> None:
    """Create the missing tables of ids, each sorted: numbers by value, text by its UTF-8 bytes.

    Raises a FileFormatError if there are too many nodes, or ids beyond 64 bits.
    """
    tables = numbering(request)
    there = database.tables()
    for table in dict.fromkeys(tables.values()):
        if table in there:
            continue
        columns = [column for column, each in tables.items() if each == table]
        kinds = database.kinds("SELECT * FROM edges")
        # HUGEINT holds kinds as different as BIGINT and UBIGINT; DuckDB itself might convert to floats.
        cast = len({kinds[column] for column in columns}) > 1
        picked = [f"CAST({column} AS HUGEINT)" if cast else column for column in columns]
        ids = " UNION ALL ".join(f"SELECT {column} AS id FROM edges" for column in picked)
        kind = _kind(database, request, table, ids)
        database.run(
            f"CREATE TABLE {table} AS SELECT CAST(id AS {kind}) AS id FROM (SELECT DISTINCT id FROM ({ids})) "
            "ORDER BY id",
            _WORDS[table],
        )
        (count,) = database.row(f"SELECT count(*) FROM {table}")
        if count > MOST_NODES:
            raise FileFormatError(
                f"{request.path}: {count} different ids ({table}), and a graph holds at most {MOST_NODES}."
            )


_WORDS = {
    "nodes": "numbering nodes",
    "sources": "numbering sources",
    "targets": "numbering destinations",
    "types": "numbering types",
}


def _kind(database: Database, request: Request, table: str, ids: str) -> str:
    """Return DuckDB's type for the ids of a table."""
    kind = database.kinds(f"SELECT id FROM ({ids})")["id"]
    if kind == "VARCHAR":
        return kind
    least, most = database.row(f"SELECT min(id), max(id) FROM ({ids})")
    if least is None or (_SIGNED[0] <= least and most <= _SIGNED[1]):
        return "BIGINT"
    if _UNSIGNED[0] <= least and most <= _UNSIGNED[1]:
        return "UBIGINT"
    what = "types" if table == "types" else "ids"
    advice = "" if table == "types" else " Give text_ids to take them as text."
    raise FileFormatError(f"{request.path}: {what} from {least} to {most} need more than 64 bits.{advice}")


def sort(database: Database, request: Request) -> None:
    """Create the table ``sorted`` of numbers, by destination, then in the file's order; drop ``edges``."""
    tables = numbering(request)
    names = list(database.kinds("SELECT * FROM edges"))
    picked, joins = [], []
    for name in names:
        table = tables.get(name)
        if name == "weight":
            picked.append("e.weight AS weight")
        elif table is None or _is_identity(database, table):
            picked.append(f"CAST(e.{name} AS INTEGER) AS {name}")
        else:
            picked.append(f"CAST(of_{name}.rowid AS INTEGER) AS {name}")
            joins.append(f"JOIN {table} of_{name} ON e.{name} = of_{name}.id")
    with database.whole():
        database.run(
            f"CREATE TABLE sorted AS SELECT {', '.join(names)} "
            f"FROM (SELECT {', '.join(picked)}, e.rowid AS place FROM edges e {' '.join(joins)}) "
            "ORDER BY target, place",
            "sorting",
        )
        database.run("DROP TABLE edges")


def _is_identity(database: Database, table: str) -> bool:
    """Return whether every id equals its number, so that no lookup is needed."""
    if database.kinds(f"SELECT id FROM {table}")["id"] == "VARCHAR":
        return False
    least, most, count = database.row(f"SELECT min(id), max(id), count(*) FROM {table}")
    return bool(count == 0 or (least == 0 and most == count - 1))
