"""Ingest: weights beyond their dtype, folders of Parquet files, headers of KONECT, damaged files."""

import math
import os
import random
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onehop import Graph
from onehop.errors import ArgumentError, FileFormatError, OnehopError
from onehop.streaming import ingest
from tests.streaming.naive_ingest import write_npy, write_parquet

pytest.importorskip("duckdb", reason="the extra ingest is not installed")

MEMORY = 1 << 29
COLUMNS, KINDS = ("src", "dst", "w"), ("INT", "INT", "DOUBLE")


def weights(path: Path, dtype: str, **how: Any) -> list[float]:
    """The weights that an ingest stores."""
    out = path.with_name("g")
    stored = ingest(path, out, weight_dtype=dtype, memory=MEMORY, **{"weight": "w"} | how)
    found: list[float] = np.load(Path(stored.folder) / "weight.npy").tolist()
    for file in Path(stored.folder).iterdir():
        file.unlink()
    out.rmdir()
    return found


def of_text(folder: Path, value: str, dtype: str) -> float:
    path = folder / "w.csv"
    path.write_text(f"src,dst,w\n1,2,1\n1,3,{value}\n")
    return weights(path, dtype)[1]


LARGE = ("1e400", "-1e400", '"1e400"', " 1e400 ", "9" * 400, "-" + "9" * 400 + ".5", "1.8e308", "1E+309")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", LARGE)
def test_no_weight_becomes_infinite(tmp_path: Path, value: str, dtype: str) -> None:
    with pytest.raises(FileFormatError, match=rf"line 3, column 'w' .* {dtype} holds, got .* them\.$"):
        of_text(tmp_path, value, dtype)


def test_double_precision_is_advised_where_it_helps(tmp_path: Path) -> None:
    for value in ("1e39", "-3.5e38", "9" * 39 + "0"):
        with pytest.raises(FileFormatError, match=r"line 3, .* float32 holds, .*weight_dtype='float64'"):
            of_text(tmp_path, value, "float32")
        assert of_text(tmp_path, value, "float64") == float(value)
    for value in ("abc", "1_0", "0x10", "1e", "infinit", "nan1"):
        with pytest.raises(FileFormatError, match=rf"line 3, .* float32 holds, got '{value}', .* them\.$"):
            of_text(tmp_path, value, "float32")


def test_weights_that_say_that_they_are_infinite_or_tiny(tmp_path: Path) -> None:
    for value in ("inf", "-inf", "+Infinity", "INFINITY", '"inf"'):
        assert of_text(tmp_path, value, "float64") == float(value.strip('"'))
        assert of_text(tmp_path, value, "float32") == float(value.strip('"'))
    assert math.isnan(of_text(tmp_path, "NaN", "float32"))
    # The nearest number is 0.
    assert of_text(tmp_path, "1e-400", "float64") == of_text(tmp_path, "1e-46", "float32") == 0.0
    assert of_text(tmp_path, "5e-324", "float64") == 5e-324


def test_weights_of_arrays(tmp_path: Path) -> None:
    edges, beside = write_npy(tmp_path / "e.npy", [(0, 1), (0, 2), (0, 3)]), tmp_path / "w.npy"
    for dtype in ("float32", "float64"):
        np.save(beside, np.array([np.inf, np.nan, -1.5]))
        found = weights(edges, dtype, weight=beside)
        assert found[0] == math.inf
        assert math.isnan(found[1])
        assert found[2] == -1.5
    np.save(beside, np.array([1.0, 2.0, -1e39]))
    with pytest.raises(FileFormatError, match=r"w\.npy, entry 2: .* got -1e\+39\. .*'float64'"):
        weights(edges, "float32", weight=beside)
    assert weights(edges, "float64", weight=beside)[2] == -1e39


def test_types_beyond_64_bits_are_not_told_to_be_ids(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("src,dst,t\n1,2,18446744073709551616\n")
    with pytest.raises(FileFormatError, match=r": types from .* need more than 64 bits\.$"):
        ingest(tmp_path / "t.csv", tmp_path / "g", edge_type="t", memory=MEMORY)


@pytest.mark.parametrize("number", [np.int64(4), np.uint8(4), np.array(4), torch.tensor(4)])
def test_numbers_of_nodes_are_any_integers(tmp_path: Path, number: Any) -> None:
    (tmp_path / "c.csv").write_text("src,dst\n1,2\n")
    for name, nodes in (("a", number), ("b", (number, number)), ("c", [number, 3])):
        stored = ingest(tmp_path / "c.csv", tmp_path / name, nodes=nodes, memory=np.int64(MEMORY))
        assert (stored.num_src, stored.num_dst) == (4, 3 if name == "c" else 4)


@pytest.mark.parametrize("nodes", [True, np.True_, torch.tensor(True), 4.0, "4", (4,), (4, 5, 6), (4, None)])
def test_other_numbers_of_nodes_are_refused(tmp_path: Path, nodes: Any) -> None:
    (tmp_path / "c.csv").write_text("src,dst\n1,2\n")
    with pytest.raises(ArgumentError, match=r"^nodes: expected"):
        ingest(tmp_path / "c.csv", tmp_path / "g", nodes=nodes, memory=MEMORY)


# What is no file, and folders of Parquet files


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    folder = tmp_path / "s.parquet"
    folder.mkdir()
    for name in ("_SUCCESS", ".part-00000.parquet.crc", "_metadata"):
        (folder / name).write_text("")
    rows = [(5, 1, 0.5), (1, 5, 1.5), (3, 1, 2.5), (3, 3, 3.5), (1, 1, 4.5)]
    write_parquet(folder / "part-00001.parquet", rows[2:], COLUMNS, KINDS)
    write_parquet(folder / "part-00000.snappy.parquet", rows[:2], COLUMNS, KINDS)
    write_parquet(folder / "part-00002.PQ", [], COLUMNS, KINDS)
    whole = ingest(write_parquet(tmp_path / "w.parquet", rows, COLUMNS, KINDS), tmp_path / "a", weight="w")
    parts = ingest(folder, tmp_path / "b", weight="w")
    for name in ("rowptr.npy", "col.npy", "weight.npy", "ids.parquet"):
        assert (Path(parts.folder) / name).read_bytes() == (Path(whole.folder) / name).read_bytes()
    write_parquet(folder / "part-00002.PQ", [(1, 2, 1.0), (2, 1, 1e300)], COLUMNS, KINDS)
    with pytest.raises(FileFormatError, match=r"s\.parquet, part-00002\.PQ, row 1 counted"):
        ingest(folder, tmp_path / "c", weight="w")


def test_files_of_a_folder_that_differ(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    write_parquet(folder / "0.parquet", [(1, 2, 1.5)], COLUMNS, ("INT", "INT", "FLOAT"))
    write_parquet(folder / "1.parquet", [(1, 2, 1.5)], COLUMNS, KINDS)
    with pytest.raises(FileFormatError, match=r"1\.parquet: expected .* of 0\.parquet, .*'w' FLOAT, got"):
        ingest(folder, tmp_path / "g", weight="w")


def test_what_is_no_file_is_called_by_its_name(tmp_path: Path) -> None:
    def sentence(path: Path, **how: Any) -> str:
        with pytest.raises(FileFormatError) as error:
            ingest(path, tmp_path / "g", **how)
        return str(error.value)

    folder = tmp_path / "s.parquet"
    folder.mkdir()
    assert "the folder is empty" in sentence(folder)
    (folder / "_SUCCESS").write_text("")
    assert "the folder is empty" in sentence(folder)
    (folder / "part-0.csv").write_text("src,dst\n1,2\n")
    assert "a folder is read where it holds .parquet files alone" in sentence(folder)
    assert "part-0.csv is none" in sentence(folder)
    (folder / "part-0.csv").unlink()
    (folder / "year=2020.parquet").mkdir()
    assert "year=2020.parquet is none" in sentence(folder)
    os.mkfifo(tmp_path / "p.csv")
    assert "expected a file, got a pipe" in sentence(tmp_path / "p.csv")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.csv"))
        assert "expected a file, got a socket" in sentence(tmp_path / "s.csv")
    (tmp_path / "d.csv").symlink_to("/dev/null")
    assert "expected a file, got a device" in sentence(tmp_path / "d.csv")
    edges = write_npy(tmp_path / "e.npy", [(0, 1)])
    assert "expected a file, got a folder" in sentence(edges, weight=folder)
    for path in (folder, tmp_path / "p.csv", tmp_path / "d.csv"):
        with pytest.raises(FileFormatError, match="expected a file, got a"):
            Graph.load(path)


# KONECT


@pytest.mark.parametrize("header", ["% bip weighted", "% bip", "%bip unweighted", "%  BIP\tposweighted \r"])
@pytest.mark.parametrize("name", ["k.txt", "k.tsv"])
def test_a_bipartite_network_is_not_one_set_of_nodes(tmp_path: Path, header: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(f"{header}\n% 3 2 2\n1\t1\t5\n2\t2\t4\n1\t2\t3\n".encode())
    how: dict[str, Any] = {"memory": MEMORY}
    for refused in ({}, {"nodes": 3}, {"text_ids": True}):
        with pytest.raises(FileFormatError, match=r"header of a bipartite .*Give bipartite=True"):
            ingest(path, tmp_path / "g", **how, **refused)
    with pytest.raises(FileFormatError, match=r"header of a bipartite .*onehop\.ingest"):
        Graph.load(path)
    apart = ingest(path, tmp_path / "a", **how, bipartite=True)
    assert (apart.num_src, apart.num_dst, apart.num_edges) == (2, 2, 3)
    numbered = ingest(path, tmp_path / "b", **how, nodes=(3, 3))
    assert (numbered.num_src, numbered.num_dst) == (3, 3)


@pytest.mark.parametrize("header", ["% sym", "% asym weighted", "# bip", "% bipartite or not", "% a\n% b"])
def test_other_headers_are_comments(tmp_path: Path, header: str) -> None:
    (tmp_path / "k.txt").write_text(f"{header}\n1 2\n2 3\n% bip\n")
    assert Graph.load(tmp_path / "k.txt").edge_index().tolist() == [[1, 2], [2, 3]]
    (tmp_path / "k.txt").write_text(f"{header}\n1 2\n2 3\n")
    assert ingest(tmp_path / "k.txt", tmp_path / "g", memory=MEMORY).num_edges == 2


# Damage


def test_no_damaged_parquet_file_shows_a_query(tmp_path: Path) -> None:
    rows = [(number % 50, number % 41, number / 7) for number in range(2000)]
    whole = write_parquet(tmp_path / "w.parquet", rows, COLUMNS, KINDS).read_bytes()
    chance, refused = random.Random(0), 0
    path = tmp_path / "d.parquet"
    cases = [b"", b"PAR1", whole[:-1], whole[: len(whole) // 2]]
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 20))):
            damaged[chance.randrange(len(whole) - 700, len(whole))] = chance.randrange(256)
        cases.append(bytes(damaged))
    for number, case in enumerate(cases):
        path.write_bytes(case)
        sentence = refusal(path, tmp_path / f"g{number}")
        refused += bool(sentence)
        assert not sentence or "d.parquet" in sentence
        assert not any(word in sentence for word in ("SELECT", "LINE", "read_parquet", "\n"))
    assert refused > 30


def refusal(path: Path, out: Path) -> str:
    """The sentence with which a file is refused; empty where it is read."""
    try:
        ingest(path, out, weight="w", memory=MEMORY)
    except OnehopError as error:
        return str(error)
    return ""
