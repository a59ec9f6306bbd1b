"""Ingest under faults: damaged files, wrong requests, interruptions, a full disk, two runs at once."""

import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onehop.errors import ArgumentError, ConfigurationError, FileFormatError, IndexRangeError, StorageError
from onehop.graph.stored import StoredGraph
from onehop.ops.streaming.lock import alone
from onehop.streaming import ingest
from onehop.streaming.from_file import load, number, run
from onehop.streaming.from_file.database import Database
from tests.processes import Stop, run_python
from tests.streaming.naive_ingest import expected, write_csv, write_npy, write_parquet

pytest.importorskip("duckdb", reason="the extra ingest is not installed")

MEMORY = 1 << 29
EDGES = [(3, 1), (1, 1), (9, 3), (3, 1)]


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


_MISTAKES: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("", {}, FileFormatError, "the file is empty"),
    ("src\n1\n", {}, FileFormatError, "line 1: .* one of destinations with ',' between them, got 'src'"),
    ("a;b\n1;2\n", {}, FileFormatError, r"Name the delimiter \(--delimiter\); this line has ';'"),
    ("a,b,c\n1,2,3\n", {}, FileFormatError, "line 1: 'a', 'b', 'c' may be an edge or the names"),
    ("bob,ann\nann,bob\n", {}, FileFormatError, r"Give header=False \(--no-header\) if it is an edge"),
    ("a,b,c\n1,2,3\n", {"header": True}, ArgumentError, "no column is called 'source', .*'a', 'b', 'c'"),
    ("src,from,dst\n1,2,3\n", {}, ArgumentError, "source: several columns could be meant"),
    ("src,dst,w,w\n1,2,3,4\n", {"weight": "w"}, ArgumentError, "weight: .* has several columns 'w'"),
    ("src,dst\n1,2\n", {"target": "to"}, ArgumentError, "has no column 'to'; it has 'src', 'dst'"),
    ("src,dst\n1,2\n", {"weight": "w"}, ArgumentError, "weight: .* has no column 'w'; it has 'src'"),
    ("src,dst\n1,2\n\n,2\n3,4\n", {}, FileFormatError, r"line 4, column 'src' \(source\): .* 1 of 3 edges"),
    ('src,dst\n1,2\n1,""\n', {"text_ids": True}, FileFormatError, r"line 3, column 'dst' .* got none"),
    ("src,dst,w\n1,2,\n1,2,3\n", {"weight": "w"}, FileFormatError, r"column 'w' \(weight\): .* got none"),
    ("src,dst,w\n1,2,x\n", {"weight": "w"}, FileFormatError, "expected a number that float32 holds, got 'x'"),
    ("src,dst,w\n1,2,1_0\n", {"weight": "w"}, FileFormatError, "float32 holds, got '1_0'"),
    ("src,dst,w\n1,2,1e39\n", {"weight": "w"}, FileFormatError, "got '1e39', as in 1 of 1 edges"),
    (
        "src,dst\n1,2.5\n",
        {},
        FileFormatError,
        r"line 2, column 'dst' \(destination\): .* got '2.5'.*text_ids",
    ),
    ("src,dst\n1.0,2.0\n", {}, FileFormatError, "line 2, column 'src' .* got '1.0'"),
    ("src,dst\na,1\n", {}, FileFormatError, "line 2: the first edge is from 'a' to '1': a number and"),
    ("src,dst\n1," + "9" * 40, {}, FileFormatError, "expected an integer of at most 64 bits"),
    ("src,dst\n1,a\n", {"nodes": 9}, FileFormatError, "line 2, column 'dst' .*: expected an integer"),
    (
        "src,dst\n1,9\n",
        {"nodes": 9},
        IndexRangeError,
        "line 2: the destination .* 9 to 9, and 9 nodes allow 0",
    ),
    ("src,dst\n-1,8\n", {"nodes": 9}, IndexRangeError, "source numbers are from -1 to -1"),
    ("src,dst\n1,2\n3\n4,5,6,7\n", {}, FileFormatError, "line 3: expected 2 columns with ',' .* got 1"),
    ("src,dst\n1,2\n4,5,6,7\n", {}, FileFormatError, "line 3: expected 2 columns with ',' .* got 4"),
    ("# a comment\n\n", {}, FileFormatError, "the file is empty, or has comments alone"),
    ("src,dst\n" + "1,2\n" * 40_000 + "x,2\n", {}, FileFormatError, r"line 40002, .*--text-ids"),
    ("src,dst\n1,2\n1,a\0b\n", {}, FileFormatError, "line 3: expected text, got a byte 0"),
    ('src,dst\na,b\n"a"b,c\n', {}, FileFormatError, "line 3: expected fields as in RFC 4180"),
    ('src,dst\na,b\n"a,b\nc,d\n', {}, FileFormatError, "line 3: expected fields as in RFC 4180"),
    ('src,dst\na,"b\n\nb"\na\n', {}, FileFormatError, "line 5: expected 2 columns"),
    ("src,dst\na,b\n" + "x" * (1 << 21), {}, FileFormatError, "line 3: the line is longer than 1 MiB"),
    ('a::"b"\n', {"delimiter": "::"}, FileFormatError, "line 1: expected no quotation mark"),
]


@pytest.mark.parametrize(("text", "how", "kind", "message"), _MISTAKES)
def test_mistakes_of_a_text_file_are_sentences(
    text: str, how: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "e.csv", text)
    with pytest.raises(kind, match=message):
        ingest(path, tmp_path / "g", memory=MEMORY, **how)
    assert list(tmp_path.iterdir()) == [path]


def test_mistakes_of_other_files_are_sentences(tmp_path: Path) -> None:
    out = tmp_path / "g"

    def refused(kind: type[Exception], message: str, path: Path, **how: Any) -> None:
        with pytest.raises(kind, match=message):
            ingest(path, out, memory=how.pop("memory", MEMORY), **how)
        assert not out.exists()
        assert not out.with_name("g.ingest").exists()

    edges = write_npy(tmp_path / "e.npy", EDGES)
    refused(FileNotFoundError, "there is no such file", tmp_path / "none.csv")
    refused(FileFormatError, "ends in one of .parquet", written(tmp_path, "e.xlsx", ""))
    refused(FileFormatError, "cannot be read", written(tmp_path, "bad.parquet", "no parquet"))
    refused(FileFormatError, r"not a whole \.npy file", written(tmp_path, "bad.npy", "no array"))
    refused(FileFormatError, "no whole pairs of int64", written(tmp_path, "bad.bin", "x" * 24))
    (tmp_path / "cut.npy").write_bytes(edges.read_bytes()[:-8])
    refused(FileFormatError, r"not a whole \.npy file", tmp_path / "cut.npy")
    for array in (np.ones((2, 3)), np.ones((3, 3), int), np.ones(2, int)):
        np.save(tmp_path / "shape.npy", array)
        refused(FileFormatError, r"expected integers of shape \[2, E\]", tmp_path / "shape.npy")
    np.save(tmp_path / "short.npy", np.ones(3))
    refused(FileFormatError, r"numbers of shape \[4\]", edges, weight=tmp_path / "short.npy")
    refused(FileFormatError, r"integers of shape \[4\]", edges, edge_type=tmp_path / "short.npy")
    refused(FileNotFoundError, "none.npy: there is no such file", edges, weight=tmp_path / "none.npy")
    refused(ArgumentError, "source: .* has no named columns", edges, source="a")
    refused(ArgumentError, "text_ids: the ids in .* are numbers", edges, text_ids=True)
    refused(ArgumentError, "delimiter, header: .* is no text file", edges, header=True)
    refused(ArgumentError, "dtype: expected one of int32", edges, dtype="float32")
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"src,dst\na,b\na,\xe9\n")
    refused(FileFormatError, r"line 3, column 'dst': expected UTF-8", latin)
    latin.write_bytes("src,dst\na,b\n".encode("utf-16"))
    refused(FileFormatError, "UTF-16, save it as UTF-8", latin)
    for delimiter in ("", '"', "\n"):
        refused(ArgumentError, "delimiter: expected one character or more", latin, delimiter=delimiter)
    bad = write_parquet(
        tmp_path / "w.parquet", [(1, 2, 1e300)], ("src", "dst", "w"), ("INT", "INT", "DOUBLE")
    )
    refused(FileFormatError, r"row 0 counted from 0, column 'w' .* got 1e\+300.*float64", bad, weight="w")
    bad = write_parquet(tmp_path / "n.parquet", [(1, 2), (None, 2)], ("src", "dst"), ("INT", "INT"))
    refused(FileFormatError, r"row 1 counted from 0, column 'src' .* got none", bad)
    refused(ArgumentError, "weight_dtype: expected one of float32", edges, weight_dtype="int8")
    refused(ArgumentError, "nodes: expected 0 to", edges, nodes=-1)
    refused(ArgumentError, "nodes: with it ids are node numbers", edges, nodes=10, bipartite=True)
    refused(ArgumentError, "memory: expected .* or more for", edges, memory=1000)
    with pytest.raises(ArgumentError, match="exists; remove it or give another name"):
        ingest(edges, tmp_path, memory=MEMORY)


def stop(*_: object) -> None:
    raise Stop


def interrupted(path: Path, out: Path, place: Any, name: str) -> None:
    """Runs until a function begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, stop)
        with pytest.raises(Stop):
            ingest(path, out, memory=MEMORY)


def assert_is(stored: StoredGraph, edges: list[tuple[int, int]], bipartite: bool = False) -> None:
    exact = expected(edges, bipartite=bipartite)
    assert (stored.rowptr.tolist(), stored.col.tolist()) == (exact.rowptr, exact.col)


@pytest.mark.parametrize(
    ("place", "name", "done"),
    [
        (number, "number", {"edges"}),
        (number, "sort", {"edges", "nodes"}),
        (run, "store", {"sorted", "nodes"}),
        (run, "_put_pointers", {"sorted", "nodes"}),
    ],
    ids=["read", "numbered", "sorted", "storing"],
)
def test_an_interrupted_run_goes_on_after_the_last_step(
    place: Any, name: str, done: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    interrupted(path, tmp_path / "g", place, name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["e.csv", "g.ingest"]
    ran: list[str] = []
    queries = Database.run

    def noted(self: Database, query: str, what: str = "") -> None:
        ran.append(what)
        queries(self, query, what)

    monkeypatch.setattr(Database, "run", noted)
    seen: list[set[str]] = []
    tables = Database.tables
    monkeypatch.setattr(Database, "tables", lambda self: seen.append(tables(self)) or tables(self))
    stored = ingest(path, tmp_path / "g", memory=MEMORY)
    assert seen[0] == done
    steps = {"reading": "edges", "numbering nodes": "nodes", "sorting": "sorted"}
    again = {steps[what] for what in ran if what in steps}
    assert again == {"edges", "nodes", "sorted"} - done - ({"edges"} if "sorted" in done else set())
    assert_is(stored, EDGES)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["e.csv", "g"]


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    """The process ends at once, without a word to DuckDB."""

    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    code = f"""
import os
from onehop.streaming import from_file
from onehop.streaming.from_file import number
number.sort = lambda *_: os._exit(7)
from_file.ingest({str(path)!r}, {str(tmp_path / "g")!r}, memory={MEMORY})
"""
    assert run_python(["-c", code]).returncode == 7
    assert_is(ingest(path, tmp_path / "g", memory=MEMORY), EDGES)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["e.csv", "g"]


@pytest.mark.parametrize("change", ["file", "request", "note"])
def test_a_run_of_something_else_is_begun_anew(
    change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    interrupted(path, tmp_path / "g", run, "store")
    edges = EDGES
    if change == "file":
        edges = [*EDGES, (1, 3)]
        write_csv(path, edges, ("src", "dst"))
    elif change == "note":
        (tmp_path / "g.ingest" / "request.json").write_text("[")
    bipartite = change == "request"
    stored = ingest(path, tmp_path / "g", bipartite=bipartite, memory=MEMORY)
    assert "begun anew" in caplog.text
    assert_is(stored, edges, bipartite)


def test_a_file_written_to_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    found = load._check_range

    def changed(*given: Any) -> None:
        write_csv(path, EDGES[:2], ("src", "dst"))
        found(*given)

    monkeypatch.setattr(load, "_check_range", changed)
    with pytest.raises(FileFormatError, match="was written to while it was read"):
        ingest(path, tmp_path / "g", memory=MEMORY)
    assert list(tmp_path.iterdir()) == [path]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    with alone(tmp_path / "g"), pytest.raises(StorageError, match="is being written by another run"):
        ingest(path, tmp_path / "g", memory=MEMORY)


def test_columns_that_are_left_out_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kinds = ("BIGINT", "BIGINT", "DOUBLE", "VARCHAR")
    rows = [(1, 2, 0.5, "x")]
    path = write_parquet(tmp_path / "e.parquet", rows, ("src", "dst", "w", "t"), kinds)
    with caplog.at_level(logging.WARNING, "onehop"):
        ingest(path, tmp_path / "g", weight="w", memory=MEMORY)
    assert "columns that are left out: t." in caplog.text


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    ingest(path, tmp_path / "g", memory=MEMORY, progress=lambda *each: told.append(each))
    steps = ["checking", "reading", "numbering nodes", "sorting", "storing", "storing ids"]
    assert list(dict.fromkeys(what for what, _ in told)) == steps
    assert all(0 <= done <= 1 for _, done in told)
    assert {what for what, done in told if done == 1} == set(steps)


def test_without_duckdb_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    with pytest.raises(ConfigurationError, match=r"needs duckdb.*pip install 'onehop\[ingest\]'"):
        ingest(path, tmp_path / "g", memory=MEMORY)
    assert list(tmp_path.iterdir()) == [path]


# Large enough for one graph and its ids, and for what is on the way.
_DISK = 12 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system ({mounted.stderr.decode().strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_that_is_full(tmp_path: Path, disk: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 2**62, (2, 60_000))
    np.save(tmp_path / "e.npy", edges)
    outcomes = []
    for left in (0, 1 << 20, 4 << 20):
        other = disk / "other"
        other.write_bytes(bytes(_DISK - left))
        try:
            ingest(tmp_path / "e.npy", disk / "g", memory=MEMORY)
            outcomes.append("whole")
        except StorageError as error:
            outcomes.append("refused" if "Make room" in str(error) else "unclear")
            assert not (disk / "g").exists()
        other.unlink()
        shutil.rmtree(disk / "g", ignore_errors=True)
    stored = run.ingest(tmp_path / "e.npy", disk / "h", memory=MEMORY)
    assert outcomes[:2] == ["refused", "refused"]
    assert stored.num_edges == 60_000
    assert {each.name for each in disk.iterdir()} <= {"g", "h", "g.ingest"}


def test_room_for_the_result_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "e.csv", EDGES, ("src", "dst"))
    usage = run.shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(run.shutil, "disk_usage", lambda _: usage._replace(free=7))
        with pytest.raises(StorageError, match=r"needs 40 B and its disk has 7 B left.*what is done is kept"):
            ingest(path, tmp_path / "g", memory=MEMORY)
    assert ingest(path, tmp_path / "g", memory=MEMORY).num_edges == 4
