"""A naive ingest in memory, and writers of the same edges in every kind of file."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Edge = tuple[Any, ...]


class Expected(NamedTuple):
    """Plain lists: the ids in the order of their numbers, and the rows."""

    source_ids: list[Any]
    target_ids: list[Any]
    rowptr: list[int]
    col: list[int]
    order: list[int]


def expected(
    edges: Sequence[Edge], nodes: tuple[int, int] | None = None, bipartite: bool = False
) -> Expected:
    """Rows of edges (source, target, ...), one after the other."""
    if nodes is not None:
        source_ids, target_ids = (list(range(count)) for count in nodes)
    elif bipartite:
        source_ids, target_ids = (_sorted({edge[end] for edge in edges}) for end in (0, 1))
    else:
        source_ids = target_ids = _sorted({edge[end] for edge in edges for end in (0, 1)})
    sources, targets = ({each: n for n, each in enumerate(ids)} for ids in (source_ids, target_ids))
    order = sorted(range(len(edges)), key=lambda place: targets[edges[place][1]])
    counts = Counter(edge[1] for edge in edges)
    rowptr = [0, *accumulate(counts[target] for target in target_ids)]
    return Expected(source_ids, target_ids, rowptr, [sources[edges[place][0]] for place in order], order)


def _sorted(ids: set[Any]) -> list[Any]:
    return sorted(ids, key=lambda each: each.encode() if isinstance(each, str) else each)


def write_csv(path: Path, edges: Sequence[Edge], names: Sequence[str]) -> Path:
    def cell(value: Any) -> str:
        return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else repr(value)

    lines = [",".join(names), *(",".join(map(cell, edge)) for edge in edges)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path, edges: Sequence[Edge], names: Sequence[str], kinds: Sequence[str]) -> Path:
    import duckdb

    with duckdb.connect() as connection:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True))
        connection.execute(f"CREATE TABLE edges ({columns})")
        if edges:
            connection.executemany(
                f"INSERT INTO edges VALUES ({', '.join('?' * len(names))})", [list(edge) for edge in edges]
            )
        connection.execute(f"COPY edges TO '{path}' (FORMAT parquet)")
    return path


def write_npy(path: Path, edges: Sequence[Edge], by_rows: bool = False, dtype: str = "int64") -> Path:
    pairs = np.array([edge[:2] for edge in edges], dtype).reshape(-1, 2)
    np.save(path, pairs if by_rows else np.ascontiguousarray(pairs.T))
    return path


def write_bin(path: Path, edges: Sequence[Edge], dtype: str = "int64") -> Path:
    np.array([edge[:2] for edge in edges], dtype).reshape(-1, 2).tofile(path)
    return path


def read_ids(path: Path) -> list[Any]:
    """The map that was kept, by number."""
    import duckdb

    with duckdb.connect() as connection:
        query = "SELECT number, id FROM read_parquet(?) ORDER BY number"
        rows = connection.execute(query, [str(path)]).fetchall()
    assert [row[0] for row in rows] == list(range(len(rows)))
    return [row[1] for row in rows]
