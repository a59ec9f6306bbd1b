"""Graphs on disk from files of edges, against a naive reader, on small hostile inputs."""

import csv
import gzip
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from onehop import FileFormatError, Graph
from onehop.graph.stored import StoredGraph
from onehop.streaming import ingest
from onehop.streaming.from_file.request import Request
from onehop.streaming.from_file.text import looked_through, opened
from tests.streaming.naive_ingest import (
    Edge,
    expected,
    read_ids,
    write_bin,
    write_csv,
    write_npy,
    write_parquet,
)

pytest.importorskip("duckdb", reason="the extra ingest is not installed")

MEMORY = 1 << 29
NAMES = ("src", "dst", "w", "t")

EDGES: dict[str, list[Edge]] = {
    "one-edge": [(7, 3)],
    "one-loop": [(5, 5)],
    "loops": [(2, 2), (9, 9), (2, 2), (2, 9)],
    "multi-edges": [(1, 2), (1, 2), (2, 1), (1, 2)],
    "negative": [(-5, 3), (3, -5), (-(2**63), 2**63 - 1), (0, -1)],
    "beyond-63-bits": [(2**64 - 1, 0), (0, 2**63), (2**64 - 1, 2**64 - 1)],
    "gaps": [(10**15, 5), (5, 10**9), (10**9, 10**15), (6, 10**15)],
    "dense": [(0, 2), (2, 0), (1, 2), (2, 2), (0, 1)],
    "not-from-0": [(1, 3), (3, 2), (2, 3)],
    "hub": [(k % 17, 4) for k in range(300)] + [(4, k % 17) for k in range(40)],
}
TEXT: list[Edge] = [
    ("b", "a"),
    ("ä", "Z"),
    ("10", "9"),
    ("a b", ",;\t"),
    ('say "x"', "b"),
    ("b", "a"),
    ("\U0001f600", "￿"),
    ("a", "a"),
    ("it's", "'"),
]


def check(stored: StoredGraph, edges: Sequence[Edge], **how: Any) -> None:
    """The stored graph, its ids, weights and types are those of the naive reader."""
    exact = expected(edges, **how)
    assert (stored.num_src, stored.num_dst) == (len(exact.source_ids), len(exact.target_ids))
    assert stored.rowptr.tolist() == exact.rowptr
    assert stored.col.tolist() == exact.col
    again = Graph.open(stored.folder)
    assert again.num_edges == len(edges)
    assert [len(counts) for _, counts, _ in again.blocks()] or not exact.target_ids
    files = {file.name for file in stored.folder.iterdir()} - {"meta.json", "rowptr.npy", "col.npy"}
    maps = {
        (): {"ids.parquet": exact.source_ids},
        ("bipartite",): {"source_ids.parquet": exact.source_ids, "target_ids.parquet": exact.target_ids},
        ("nodes",): {},
    }[tuple(how)]
    for name, ids in maps.items():
        assert read_ids(stored.folder / name) == ids
    assert {name for name in files if name.endswith("ids.parquet") and name != "type_ids.parquet"} == set(
        maps
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "csv") for name in ("one-edge", "loops", "negative", "beyond-63-bits", "dense")),
        *((name, "parquet") for name in ("multi-edges", "negative", "beyond-63-bits", "gaps")),
        *(("hub", "npy"), ("beyond-63-bits", "npy-pairs"), ("one-loop", "bin"), ("not-from-0", "bin")),
    ],
)
def test_numbers_of_every_kind(name: str, kind: str, tmp_path: Path) -> None:
    edges = EDGES[name]
    dtype, column = ("uint64", "UBIGINT") if name == "beyond-63-bits" else ("int64", "BIGINT")
    path = {
        "csv": lambda: write_csv(tmp_path / "e.csv", edges, NAMES[:2]),
        "parquet": lambda: write_parquet(tmp_path / "e.parquet", edges, NAMES[:2], (column, column)),
        "npy": lambda: write_npy(tmp_path / "e.npy", edges, dtype=dtype),
        "npy-pairs": lambda: write_npy(tmp_path / "e.npy", edges, True, dtype),
        "bin": lambda: write_bin(tmp_path / "e.bin", edges, dtype),
    }[kind]()
    check(ingest(path, tmp_path / "g", memory=MEMORY, dtype=dtype), edges)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, "g"])


@pytest.mark.parametrize(("kind", "bipartite"), [("csv", False), ("parquet", True)])
def test_text(kind: str, bipartite: bool, tmp_path: Path) -> None:
    if kind == "csv":
        path = write_csv(tmp_path / "e.csv", TEXT, NAMES[:2])
    else:
        path = write_parquet(tmp_path / "e.parquet", TEXT, NAMES[:2], ("VARCHAR", "VARCHAR"))
    how = {"bipartite": True} if bipartite else {}
    check(ingest(path, tmp_path / "g", memory=MEMORY, bipartite=bipartite), TEXT, **how)


_IDS = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "UTINYINT": st.integers(0, 255),
    "VARCHAR": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
}


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(sorted(_IDS)), bipartite=st.booleans())
def test_any_edges(data: st.DataObject, kind: str, bipartite: bool, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    edges = data.draw(st.lists(st.tuples(_IDS[kind], _IDS[kind]), max_size=30))
    path = write_parquet(folder / "e.parquet", edges, NAMES[:2], (kind, kind))
    how = {"bipartite": True} if bipartite else {}
    check(ingest(path, folder / "g", memory=MEMORY, bipartite=bipartite), edges, **how)


def test_numbers_that_are_node_numbers_already(tmp_path: Path) -> None:
    edges = EDGES["dense"]
    path = write_csv(tmp_path / "e.csv", edges, NAMES[:2])
    check(ingest(path, tmp_path / "g", nodes=9, memory=MEMORY), edges, nodes=(9, 9))
    check(ingest(path, tmp_path / "b", nodes=(3, 20), memory=MEMORY), edges, nodes=(3, 20))


def test_small_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onehop.streaming.from_file.run._MOST_BLOCK", 7)
    monkeypatch.setattr("onehop.graph.folder.PIECE", 5)
    for name in ("gaps", "hub"):
        path = write_npy(tmp_path / "e.npy", EDGES[name])
        check(ingest(path, tmp_path / name, memory=MEMORY), EDGES[name])
    path = write_npy(tmp_path / "n.npy", EDGES["hub"])
    check(ingest(path, tmp_path / "n", nodes=(17, 90), memory=MEMORY), EDGES["hub"], nodes=(17, 90))


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
@pytest.mark.parametrize("weight_dtype", ["float32", "float64"])
def test_weights_and_types_are_kept(kind: str, weight_dtype: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    types: list[Any] = ["likes", "", "knows"] if kind == "parquet" else [7, -2, 100]
    edges: list[Edge] = [
        (int(a), int(b), float(w), types[t])
        for a, b, w, t in zip(
            generator.integers(0, 20, 100),
            generator.integers(0, 20, 100),
            generator.standard_normal(100),
            generator.integers(0, 3, 100),
            strict=True,
        )
    ]
    columns = {"weight": "w", "edge_type": "t"}
    if kind == "csv":
        path = write_csv(tmp_path / "e.csv", edges, NAMES)
    elif kind == "parquet":
        path = write_parquet(tmp_path / "e.parquet", edges, NAMES, ("INTEGER", "BIGINT", "DOUBLE", "VARCHAR"))
    else:
        path = write_npy(tmp_path / "e.npy", edges)
        np.save(tmp_path / "w.npy", [edge[2] for edge in edges])
        np.save(tmp_path / "t.npy", [edge[3] for edge in edges])
        columns = {"weight": str(tmp_path / "w.npy"), "edge_type": str(tmp_path / "t.npy")}
    stored = ingest(path, tmp_path / "g", weight_dtype=weight_dtype, memory=MEMORY, **columns)
    check(stored, edges)
    order = expected(edges).order
    weight = np.load(stored.folder / "weight.npy")
    assert weight.dtype == weight_dtype
    np.testing.assert_array_equal(weight, np.array([edges[k][2] for k in order], weight_dtype))
    kinds = np.load(stored.folder / "type.npy")
    assert kinds.dtype == np.int32
    stored.verify()
    damaged = bytearray((stored.folder / "weight.npy").read_bytes())
    damaged[-1] ^= 1
    (stored.folder / "weight.npy").write_bytes(damaged)
    with pytest.raises(FileFormatError, match=r"weight\.npy: bytes 128 to"):
        stored.verify()
    ids = read_ids(stored.folder / "type_ids.parquet")
    assert ids == sorted(set(types))
    assert [ids[k] for k in kinds] == [edges[k][3] for k in order]


# Ways of writing the edges of 1 to 2 and of 3 to 1.
WAYS: list[tuple[str, str, dict[str, Any]]] = [
    (".csv.gz", "1,2\n3,1\n", {}),
    (".csv", "1,2\n3,1\n", {}),
    (".txt", "1 2\n3 1\n", {}),
    (".txt", "# a comment\n# FromNodeId\tToNodeId\n1\t2\n3\t1\n", {}),
    (".txt", "  1   2\n\n3\t \t1  \r\n", {}),
    (".txt", "1 2 \n3 1 \n", {}),
    (".csv", "weight;Target Id;source_id\n0.5;2;1\n1;1;3\n", {"delimiter": ";"}),
    (".csv", "a,b,c\n9,2,1\n9,1,3\n", {"source": "c", "target": "b"}),
    (".txt", "1|2|x\n3|1|y\n", {"delimiter": "|"}),
    (".txt", "1::2::x\n3::1::y\n", {"delimiter": "::"}),
    (".txt", "1\t2\tx y\n3\t1\ty\n", {"delimiter": r"\t"}),
    (".csv", "1  2\n3 1\n", {"delimiter": r"\s+"}),
    (".csv", '"src","dst"\n"1","2"\n"3","1"\n', {}),
    (".csv", "src,dst\r\n1,2\r\n3,1\r\n", {}),
    (".csv", "src,dst\r\n1,2\n3,1\r\n", {}),
    (".csv", "src,dst\r1,2\r3,1\r", {}),
    (".csv", "src,dst\n1,2\n3,1", {}),
    (".csv", "\n% comment\n\nsrc,dst\n1,2\n3,1", {}),
    (".csv", "src,dst\n1,2,\n3,1\n\n", {}),
    (".csv", "src,dst\n +1, 2\n003,1\n", {}),
    (".csv", "\ufeffsrc,dst\n1,2\n3,1\n", {}),
    (".csv", '"src","d\nst"\n1,2\n3,1\n', {"source": "src", "target": "d\nst"}),
]
# The ids are what is written.
WRITTEN: list[tuple[str, str, dict[str, Any], list[Edge]]] = [
    (".csv", "A|1,B|2\n", {"header": False}, [("A|1", "B|2")]),
    (".tsv", "A,1\tB,2\n", {"header": False}, [("A,1", "B,2")]),
    (".csv", '"n5","m7"\nb,"a ""b"" c"\n', {"header": False}, [("n5", "m7"), ("b", 'a "b" c')]),
    (".csv", "0x10,0x11\n16,0x10\n", {"header": False}, [("0x10", "0x11"), ("16", "0x10")]),
    (".csv", "a, a\n", {"header": False}, [("a", " a")]),
    (".csv", 'a"b,nan\n', {"header": False}, [('a"b', "nan")]),
    (".csv", "a,b\nc,a\n", {"header": False}, [("a", "b"), ("c", "a")]),
    (".csv", "src,dst\n#1,2\n%3,#1\n", {"text_ids": True}, [("#1", "2"), ("%3", "#1")]),
    (".csv", "src,dst\n007,07\n7,0\n", {"text_ids": True}, [("007", "07"), ("7", "0")]),
]


@pytest.mark.parametrize(
    ("ending", "text", "how", "edges"), [*((*way, [(1, 2), (3, 1)]) for way in WAYS), *WRITTEN]
)
def test_ways_of_writing_text(
    ending: str, text: str, how: dict[str, Any], edges: list[Edge], tmp_path: Path
) -> None:
    path = tmp_path / f"e{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith(".gz") else text.encode())
    check(ingest(path, tmp_path / "g", memory=MEMORY, **how), edges)


@pytest.mark.parametrize(
    ("ending", "text", "exact"),
    [
        (".csv", "1,2\n3,1\n", False),
        (".csv", "1,2\r\n3,1\r\n", False),
        (".txt", "# a  comment\n1 2\n3 1\n", False),
        (".txt", "1\t2\n3\t1", False),
        (".csv", '"a","b ""c"", d"\n"e\nf",g', False),
        (".csv", "1,2\r\n3,1\n", True),
        (".csv", "1,2\r3,1\r", True),
        (".txt", "1  2\n3 1\n", True),
        (".txt", "1 2\n3\t1\n", True),
        (".txt", " 1 2\n3 1\n", True),
        (".csv", 'a"b",c\n', True),
        (".csv", 'a, "c"\n', True),
        (".csv", 'x,y\na,"c\n', True),
    ],
)
def test_duckdb_parses_a_file_where_its_bytes_leave_one_way(
    ending: str, text: str, exact: bool, tmp_path: Path
) -> None:
    path = tmp_path / f"e{ending}"
    path.write_bytes(text.encode())
    request = Request(path, None, None, None, None, None, False, False, None, False, "int64", "float32")
    told: list[float] = []
    assert looked_through(opened(request, tmp_path), told.append).exact == exact
    assert told[-1] == 1


_LATE = 50_000  # engines guess from some 20,000 rows


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("text_ids", [False, True])
def test_quotes_that_come_late(kind: str, text_ids: bool, tmp_path: Path) -> None:
    late = [("n5", "m7"), ('a "b" c', "x,\ty"), ("two\nlines", "n5")]
    edges = [("a", "b")] * _LATE + late
    path = tmp_path / f"e{kind}"
    with gzip.open(path, "wt", newline="") if kind == ".csv.gz" else path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
        file.write("src,dst\n".replace(",", writer.dialect.delimiter))
        writer.writerows(edges[:_LATE])
        csv.writer(file, writer.dialect, quoting=csv.QUOTE_ALL).writerows(late)
    stored = ingest(path, tmp_path / "g", text_ids=text_ids, memory=MEMORY)
    ids = sorted({each for edge in late for each in edge} | {"a", "b"})
    assert read_ids(stored.folder / "ids.parquet") == ids
    found = stored.load().edge_index().T.tolist()
    assert sorted(found) == sorted([ids.index(a), ids.index(b)] for a, b in edges)


@pytest.mark.parametrize(
    "value", ["1.6", ".5", "1e3", "0x10", "1_000", "1e-3", "1.", "NA", "x", "--1", "1 2"]
)
@pytest.mark.parametrize("column", ["src", "dst"])
def test_no_value_is_taken_for_an_integer_that_is_none(value: str, column: str, tmp_path: Path) -> None:
    bad = f"{value},1" if column == "src" else f"1,{value}"
    path = tmp_path / "e.csv"
    path.write_text("src,dst\n" + "1,2\n" * _LATE + f"{bad}\n")
    sentence = (
        rf"e\.csv, line {_LATE + 2}, column '{column}' .*: expected an integer.* got '{re.escape(value)}'"
    )
    with pytest.raises(FileFormatError, match=sentence):
        ingest(path, tmp_path / "g", memory=MEMORY)
    assert list(tmp_path.iterdir()) == [path]


def test_types_that_are_not_all_integers_are_text(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst,t\n1,2,7\n3,1,1.6\n")
    stored = ingest(tmp_path / "e.csv", tmp_path / "g", edge_type="t", memory=MEMORY)
    assert read_ids(stored.folder / "type_ids.parquet") == ["1.6", "7"]


def test_no_edges(tmp_path: Path) -> None:
    for name, path in (
        ("csv", write_csv(tmp_path / "e.csv", [], NAMES[:2])),
        ("parquet", write_parquet(tmp_path / "e.parquet", [], NAMES[:2], ("BIGINT", "VARCHAR"))),
        ("npy", write_npy(tmp_path / "e.npy", [])),
        ("bin", write_bin(tmp_path / "e.bin", [])),
    ):
        how = {"bipartite": True} if name == "parquet" else {}
        check(ingest(path, tmp_path / name, memory=MEMORY, **how), [], **how)
    check(ingest(tmp_path / "e.npy", tmp_path / "g", nodes=(3, 4), memory=MEMORY), [], nodes=(3, 4))


def test_ids_of_unlike_integers(tmp_path: Path) -> None:
    edges = [(-1, 2**64 - 1), (5, 5)]
    path = write_parquet(tmp_path / "e.parquet", [(3, 2**64 - 1), (5, 5)], NAMES[:2], ("TINYINT", "UBIGINT"))
    check(ingest(path, tmp_path / "g", memory=MEMORY), [(3, 2**64 - 1), (5, 5)])
    path = write_parquet(tmp_path / "f.parquet", edges, NAMES[:2], ("TINYINT", "UBIGINT"))
    with pytest.raises(FileFormatError, match=r"ids from -1 to 18446744073709551615 need more than 64 bits"):
        ingest(path, tmp_path / "h", memory=MEMORY)
    check(ingest(path, tmp_path / "b", bipartite=True, memory=MEMORY), edges, bipartite=True)


def test_the_order_of_bytes_of_an_array_and_patterns_in_names(tmp_path: Path) -> None:
    path = write_npy(tmp_path / "e.npy", EDGES["gaps"], dtype=">i8")
    check(ingest(path, tmp_path / "g", memory=MEMORY), EDGES["gaps"])
    (tmp_path / "a1.csv").write_text("src,dst\n8,9\n")
    path = write_csv(tmp_path / "a[1-9]*'.csv", EDGES["gaps"], NAMES[:2])
    check(ingest(path, tmp_path / "g'2", memory=MEMORY), EDGES["gaps"])
