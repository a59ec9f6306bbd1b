"""Random tables of edges, written by Python's csv and by pyarrow, and what an ingest of them gives.

    python -m tests.streaming.random_tables [--tables 5000] [--seconds 900] [--first 0]

The naive reader knows the values that were written and parses no file. Each ingest gives the graph of these
values, or refuses the file and names the line of the first value that is not of its column's kind.
"""

import argparse
import csv
import gzip
import io
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onehop.errors import FileFormatError
from onehop.streaming import ingest
from onehop.streaming.from_file import load, text as text_files
from tests.streaming import naive_ingest
from tests.streaming.naive_ingest import read_ids

MEMORY = 1 << 29
NAMES = ("src", "dst", "w", "t")
_ENDS = ["\n", "\r\n", "\r"]
_LETTERS = ["a", "b", "Z", "é", "\U0001f600", " ", "\t", ",", ";", "|", '"', "'", "#", "%", "\\", "7", "nan"]
_NO_INTEGERS = ["1.6", ".5", "1e3", "0x10", "1_000", "1e-3", "NA", "x", "--1", "1 2", "", "٣", "9" * 50]
_NO_WEIGHTS = ["x", "", "1_0", "1e39", "0x1", "1,5", "nan(1)"]
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)

Row = tuple[Any, ...]


class Table(NamedTuple):
    """A table as it was written.

    Attributes:
        path: The file.
        rows: The source, destination, weight and type of each edge; text where the file is text.
        places: The line, or in Parquet the row, of each edge.
        how: The arguments of the ingest.
    """

    path: Path
    rows: list[Row]
    places: list[int]
    how: dict[str, Any]


class Expected(NamedTuple):
    """A graph, and the weights and types of its edges, by destination."""

    graph: naive_ingest.Expected
    weights: list[float]
    types: list[Any]


def drawn(seed: int, folder: Path, most: int) -> Table:
    """A table of at most so many edges, and its file."""
    draw = random.Random(seed)
    kind = draw.choice(["integers", "integers", "wide", "odd", "text", "lines"])
    rows: list[Row] = [_row(draw, kind) for _ in range(draw.randrange(draw.choice([2, 30, most]) + 1))]
    how: dict[str, Any] = {name: True for name in ("bipartite", "text_ids") if draw.random() < 0.3}
    how |= {name: column for name, column in (("weight", "w"), ("edge_type", "t")) if draw.random() < 0.4}
    if rows and draw.random() < 0.3:
        place, column = draw.randrange(len(rows)), draw.randrange(3)
        wrong = draw.choice(_NO_WEIGHTS if column == 2 else _NO_INTEGERS)
        rows[place] = (*rows[place][:column], wrong, *rows[place][column + 1 :])
    written = draw.choice([_by_csv, _by_csv, _by_csv, _by_blanks, _by_pyarrow, _as_parquet])
    return written(draw, folder, rows, how)


def _row(draw: random.Random, kind: str) -> Row:
    weight = repr(round(draw.uniform(-9, 9), draw.randrange(5)))
    return (
        _id(draw, kind),
        _id(draw, kind),
        weight,
        draw.choice(["1", "2", "03"] if kind != "text" else ["x", "1"]),
    )


def _id(draw: random.Random, kind: str) -> str:
    number = draw.randrange(-3, 12)
    if kind == "wide":
        return str(draw.choice([number, 2**63 + number, 2**64 - 1, number << 40]))
    if kind in ("integers", "odd"):
        return draw.choice(["{}", "{:+}", "{:03}", " {}", "{}\t"] if kind == "odd" else ["{}"]).format(number)
    return "".join(draw.choices(_LETTERS + _ENDS * (kind == "lines"), k=draw.randrange(1, 4)))


def _by_csv(draw: random.Random, folder: Path, rows: list[Row], how: dict[str, Any]) -> Table:
    ending, delimiter, usual = draw.choice(
        [
            (".csv", ",", True),
            (".csv", ",", True),
            (".tsv", "\t", True),
            (".csv", ";", False),
            (".txt", " ", False),
        ]
    )
    how |= {} if usual else {"delimiter": delimiter}
    ends = draw.choice([["\n"], ["\n"], ["\r\n"], ["\r"], _ENDS])
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    order = draw.sample(range(4), 4) if draw.random() < 0.3 else [0, 1, 2, 3]
    text, begins = io.StringIO(newline=""), []

    def put(row: Sequence[Any]) -> None:
        begins.append(text.tell())
        # Python 3.11 leaves ends of lines without quotes that are not the terminator.
        how_quoted = csv.QUOTE_ALL if re.search("[\r\n]", "".join(row)) else quoting
        writer = csv.writer(text, delimiter=delimiter, lineterminator=draw.choice(ends), quoting=how_quoted)
        writer.writerow([row[k] for k in order])

    text.write(draw.choice(["", "", "\ufeff", "# a comment\n\n"]))
    comment = not rows or re.match(r"\s*$|[#%]", rows[0][0]) is not None
    if comment or order != [0, 1, 2, 3] or draw.random() < 0.7:
        put(draw.choice([NAMES, ("Source ID", "dst", "w", "t")]))
    else:
        begins.append(0)
        how |= {"header": False} | {
            name: f"column{NAMES.index(how[name])}" for name in ("weight", "edge_type") if name in how
        }
    for row in rows:
        put(row)
    written = text.getvalue()
    if draw.random() < 0.2 and written.endswith(tuple(ends)):
        written = re.sub("(\r\n|\r|\n)$", "", written)
    between = [len(re.findall("\r\n|\r|\n", written[a:b])) for a, b in pairwise([0, *begins[1:]])]
    lines = [1 + ends_before for ends_before in accumulate(between)]
    return Table(_stored(draw, folder, ending, written), rows, lines, how)


def _by_blanks(draw: random.Random, folder: Path, rows: list[Row], how: dict[str, Any]) -> Table:
    rows = [tuple(re.sub(r'[\s"]', "_", value.strip()) or "_" for value in row) for row in rows]
    between = draw.choice([[" "], ["\t"], [" ", "\t"], [" ", "   ", " \t"]])
    around, end = draw.choice([[""], ["", " ", "\t "]]), draw.choice(_ENDS)
    lines = [
        "".join(f"{value}{draw.choice(between)}" for value in row[:3]) + row[3] for row in (NAMES, *rows)
    ]
    written = "".join(draw.choice(around) + line + draw.choice(around) + end for line in lines)
    return Table(_stored(draw, folder, ".txt", written), rows, list(range(2, len(rows) + 2)), how)


def _stored(draw: random.Random, folder: Path, ending: str, written: str) -> Path:
    path = folder / f"edges{ending}{draw.choice(['', '', '.gz'])}"
    path.write_bytes(gzip.compress(written.encode(), 1) if path.suffix == ".gz" else written.encode())
    return path


def _by_pyarrow(draw: random.Random, folder: Path, rows: list[Row], how: dict[str, Any]) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow

    path = folder / "edges.csv"
    columns = [pa.array([row[k] for row in rows], pa.string()) for k in range(4)]
    options = arrow.WriteOptions(quoting_style=draw.choice(["needed", "all_valid"]))
    arrow.write_csv(pa.table(columns, NAMES), path, options)
    lines = [2]
    for row in rows:
        lines.append(lines[-1] + 1 + sum(len(re.findall("\r\n|\r|\n", value)) for value in row))
    return Table(path, rows, lines[:-1], how)


def _as_parquet(draw: random.Random, folder: Path, rows: list[Row], how: dict[str, Any]) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.string()]
    ends = (
        draw.choices(kinds, k=2)
        if how.get("bipartite") or how.get("text_ids")
        else [draw.choice(kinds[:5])] * 2
    )
    numbers = [[draw.randrange(100) for _ in ends] for _ in rows]
    values: list[Row] = [
        (
            *(str(n) if kind == pa.string() else n for n, kind in zip(pair, ends, strict=True)),
            draw.random(),
            row[3],
        )
        for pair, row in zip(numbers, rows, strict=True)
    ]
    if values and draw.random() < 0.3:
        place, column = draw.randrange(len(values)), draw.randrange(3)
        values[place] = (*values[place][:column], None, *values[place][column + 1 :])
    arrays = [
        pa.array([v[k] for v in values], kind) for k, kind in enumerate([*ends, pa.float64(), pa.string()])
    ]
    path = folder / "edges.parquet"
    parquet.write_table(pa.table(arrays, NAMES), path, row_group_size=draw.choice([1, 7, 1000]))
    return Table(path, values, list(range(len(values))), how)


def expected(table: Table) -> Expected | int | None:
    """The graph of a table; the place of the first value that is refused, or None without a place."""
    rows, how = table.rows, table.how
    readers = _readers(table)
    if readers is None:
        return None
    values: list[Row] = []
    for row, place in zip(rows, table.places, strict=True):
        try:
            values.append(tuple(reader(value) for reader, value in zip(readers, row, strict=True)))
        except ValueError:
            return place
    types = [value[3] for value in values]
    if any(isinstance(each, str) for each in types):
        types = [row[3] for row in rows]
    graph = naive_ingest.expected(values, bipartite=how.get("bipartite", False))
    for each in (graph.source_ids, graph.target_ids):
        least, most = (each[0], each[-1]) if each and isinstance(each[0], int) else (0, 0)
        if least < -(2**63) or most >= 2 ** (63 if least < 0 else 64):
            return None
    return Expected(
        graph,
        [values[k][2] for k in graph.order] if "weight" in how else [],
        [types[k] for k in graph.order] if "edge_type" in how else [],
    )


def _readers(table: Table) -> list[Callable[[Any], Any]] | None:
    """What each column is read with; None where the ends' kinds do not go together."""
    how, is_text = table.how, table.path.suffix != ".parquet"
    first = table.rows[0] if table.rows else ("1", "1", "1", "1")
    numbers = (
        [not value or _NUMBER.fullmatch(value) is not None for value in first] if is_text else [False] * 4
    )
    if not how.get("text_ids") and not how.get("bipartite") and numbers[0] != numbers[1]:
        return None
    integers = [numbers[end] and not how.get("text_ids") for end in (0, 1)]
    as_text = [str if how.get("text_ids") else lambda value: value] * 2
    ends = [_integer if whole else _given(other) for whole, other in zip(integers, as_text, strict=True)]
    weight = (lambda value: _weight(value, is_text)) if "weight" in how else (lambda value: None)
    kind = _given(lambda value: int(value) if is_text and numbers[3] and _INTEGER.fullmatch(value) else value)
    return [*ends, weight, kind if "edge_type" in how else (lambda value: None)]


def _given(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None or value == "":
            raise ValueError
        return reader(value)

    return read


def _integer(value: str) -> int:
    if not _INTEGER.fullmatch(value) or len(value) > 30:
        raise ValueError
    return int(value)


def _weight(value: Any, is_text: bool) -> float:
    if value is None or (is_text and not _NUMBER.fullmatch(value)):
        raise ValueError
    with np.errstate(over="ignore"):
        number = float(np.float32(float(value)))
    if np.isinf(number):
        raise ValueError
    return number


def check(table: Table, out: Path) -> str:
    """Ingests a table; "read" or "refused".

    Raises:
        AssertionError: The result is not what is expected.
    """
    wanted, sentence, stored = expected(table), "", None
    try:
        stored = ingest(table.path, out, memory=MEMORY, **table.how)
    except FileFormatError as error:
        sentence = str(error)
    if stored is None:
        assert not isinstance(wanted, Expected), f"refused: {sentence}"
        where = re.search(r"(?:line|row) (\d+)[, ]", sentence)
        assert wanted is None or (where and int(where[1]) == wanted), f"{sentence}\nexpected: {wanted}"
        left = [each.name for each in out.parent.iterdir() if each != table.path]
        assert not left, f"a refused file left {left}"
        return "refused"
    assert isinstance(wanted, Expected), f"read, and expected a refusal at {wanted}"
    names = ["source_ids", "target_ids"] if table.how.get("bipartite") else ["ids", "ids"]
    graph = wanted.graph
    assert [read_ids(out / f"{name}.parquet") for name in names] == [graph.source_ids, graph.target_ids]
    assert (stored.rowptr.tolist(), stored.col.tolist()) == (graph.rowptr, graph.col)
    if "weight" in table.how:
        assert np.load(out / "weight.npy").tolist() == wanted.weights
    if "edge_type" in table.how:
        ids = read_ids(out / "type_ids.parquet")
        assert [ids[kind] for kind in np.load(out / "type.npy")] == wanted.types
    return "read"


def main() -> None:
    """Runs as many tables as the command line says, and prints how many were read and refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.streaming.random_tables", description=__doc__)
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=900.0, help="stop after so long")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    counts, began = {"read": 0, "refused": 0}, time.monotonic()
    for seed in range(options.first, options.first + options.tables):
        if time.monotonic() - began > options.seconds:
            break
        # Each hundredth table is longer than the samples of engines, and than a buffer of 1 MiB.
        large = seed % 100 == 50
        small_buffers(lambda place, name, value: setattr(place, name, value))
        if not seed % 2:
            text_files._BLOCK, load._RECORDS = 1 << 16, 1 << 13
            load._OPTIONS = ("buffer_size = 1048576", "max_line_size = 65536") if large else ()
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            table = drawn(seed, Path(folder), 200_000 if large else 60)
            try:
                counts[check(table, Path(folder) / "graph")] += 1
            except Exception as error:
                raise SystemExit(
                    f"seed {seed}: {table.path.name}, {table.how}\n{table.rows[:20]}\n{error}"
                ) from error
        if sum(counts.values()) % 100 == 0:
            print(f"{sum(counts.values())} tables: {counts}, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{sum(counts.values())} tables: {counts['read']} equal, {counts['refused']} refused with their line"
    )


def small_buffers(put: Callable[[Any, str, Any], None]) -> None:
    """Makes blocks and buffers so small that small tables exceed them."""
    put(text_files, "_BLOCK", 64)
    put(load, "_RECORDS", 7)
    put(load, "_OPTIONS", ("buffer_size = 600", "max_line_size = 300"))


if __name__ == "__main__":
    main()
