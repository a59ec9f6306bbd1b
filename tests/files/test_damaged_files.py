"""Damaged and foreign files: an error that names the file, never another library's or a crash."""

import contextlib
import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings, strategies as st

from onehop import FileFormatError, Graph, files
from onehop.files.formats import number_lines

from .test_files import adjacency_arrays, edges_arrays


def refused(path: Path, message: str | None = None, content: str | bytes | None = None) -> None:
    """A file, with this content if any, is refused with a sentence that names it."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FileFormatError, match=message) as caught:
        files.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("ending", [".txt", ".npz", ".mtx", ".mat", ".csv.gz", ".unknown"])
def test_a_missing_file(tmp_path: Path, ending: str) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        Graph.load(tmp_path / f"missing{ending}")


@pytest.mark.parametrize("name", ["graph.pkl", "graph.pt", "graph", "graph.gz", "graph.npz.gz", "graph.npy"])
def test_an_unknown_kind_of_file(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, r"ends in one of \.mtx, \.mtx\.gz, \.npz", b"0 1\n")


def test_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder.txt"
    path.mkdir()
    refused(path, "expected a file")


@pytest.mark.parametrize("ending", [".txt", ".csv", ".npz", ".mtx", ".mat", ".tsv.gz", ".mtx.gz"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"\0" * 300,
        bytes(range(256)) * 8,
        b"\x89PNG\r\n\x1a\n" + b"x" * 200,
        pickle.dumps({"a": 1}),
    ],
    ids=["empty", "newline", "zeros", "all bytes", "picture", "pickle"],
)
def test_what_is_no_graph(tmp_path: Path, ending: str, content: bytes) -> None:
    refused(tmp_path / f"graph{ending}", content=content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 x\n", r"line 2: expected node numbers .* got '1 x'"),
        ("0 1\n1 2 3\n", r"line 2: expected 2 fields, as in the first line, got '1 2 3'"),
        ("0 1\n# c\n\n5\n", r"line 4: expected 2 fields, .* got '5'"),
        ("0 1 1\n0 1\n", r"line 2: expected 3 fields"),
        ("0 1 1\n0 1 one\n", r"line 2: expected a number as weight, got '0 1 one'"),
        ("0 1 1\n0 1 1.2.3\n", r"line 2: expected a number as weight"),
        ("0 1\n-1 2\n", r"line 2: expected node numbers"),
        ("0 1\n1.5 2\n", r"line 2: expected node numbers"),
        ("0 1 1\n1.0 2 3\n", r"line 2: expected node numbers"),
        ("0 1 1\n1e0 2 3\n", r"line 2: expected node numbers"),
        ("0 1\n0 2147483647\n", r"line 2: expected node numbers from 0 to 2147483646"),
        ("0 1\n0 99999999999999999999999\n", r"line 2: expected node numbers"),
        ("0 1\n0 18446744073709551617\n", r"line 2: expected node numbers"),
        ("0,1\n2,,3\n", r"line 2: expected 2 fields"),
        ("0,1\n2,\n", r"line 2: expected node numbers"),
        ("0,1\n,2\n", r"line 2: expected node numbers"),
        ("0,1\n2,3,\n", r"line 2: expected 2 fields"),
        ("0;1\n", r"line 1: expected two node numbers"),
        ("7\n", r"line 1: expected two node numbers and perhaps a weight, got '7'"),
        ("0 1 2 3 4\n", r"line 1: expected two node numbers"),
        ("a b c d e\n1 2 3 4 5\n", r"line 2: expected two node numbers"),
        ("0 1 2 3\n0 1 2 x\n", r"line 2: expected a number"),
        ("0 1\n" + "7" * 5000 + " 1\n", r"line 2: expected node numbers"),
        ("0 1 1\n0 1 1_000\n", r"line 2: expected a number"),
        ("0 1 1\n0 1 0x10\n", r"line 2: expected a number"),
        ("0 1 1\n0 1 \N{FULLWIDTH DIGIT ONE}\n", r"line 2: expected a number"),
        ("0 1 1\n0 1 +\n", r"line 2: expected a number"),
        ("0 1\n0 +\n", r"line 2: expected node numbers"),
        ("0 1\n0 ++1\n", r"line 2: expected node numbers"),
        ("0 1\n1,000 2\n", r"line 2: expected node numbers"),
        ("0 1 0,5\n", r"line 1: expected node numbers"),
        ("0 1 2\n1 2 0,5\n", r"line 2: expected 3 fields"),
        ("0 1\r2 3\r4 5\r", r"line 1: expected node numbers"),
        (",source,target\n0,0,1\n", r"line 1: expected node numbers"),
        ("0 1\nsource target\n", r"line 2: expected node numbers"),
        ("a b\nc d\n", r"line 2: expected node numbers"),
        ("0 1 {'weight': 1.0)}\n", r"line 1: expected a dictionary with a weight alone"),
        ("0 1\n0 \N{ARABIC-INDIC DIGIT ONE}\n", r"line 2: expected node numbers"),
        ("0 1\n\x00 1\n", r"line 2: expected node numbers"),
        ("source target\n", "no edge"),
        ("# nothing\n", "no edge"),
        ("0 1\n" + "7" * 200 + "\n", r"line 2: expected 2 fields.*\.\.\.'"),
        ("0 1\n0 2000000000\n", "identifiers rather than node numbers"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path / "edges.txt", message, text)


def test_a_bad_line_deep_in_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_lines, "_BLOCK_BYTES", 100)
    text = "a,b\n" + "1,2\n" * 500 + "1,2,3\n" + "1,2\n" * 500
    refused(tmp_path / "edges.csv", "line 502: expected 2 fields", text)


def test_an_endless_line(tmp_path: Path) -> None:
    refused(tmp_path / "edges.txt", "a line is longer than 1 MiB", "0 1 " * (1 << 20))


def test_a_truncated_compressed_list(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"%d %d\n" % (i, i * 7919 % 9973) for i in range(9973)))
    for length in (5, len(whole) // 2, len(whole) - 4):
        refused(tmp_path / "edges.txt.gz", "compressed data are damaged", whole[:length])


HEADER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    "text",
    [
        "3 3 1\n1 1 1\n",
        HEADER,
        HEADER + "3 3\n",
        HEADER + "3 3 2\n1 1 1\n",
        HEADER + "3 3 1\n4 1 1\n",
        HEADER + "3 3 1\n0 1 1\n",
        HEADER + "3 3 1\n-1 1 1\n",
        HEADER + "3 3 1\n1.5 1 1\n",
        HEADER + "3 3 1\n1 1 x\n",
        HEADER + "3 3 1\n1 99999999999999999999 1\n",
        HEADER + "-3 3 1\n1 1 1\n",
        HEADER + "3 3 99999999999999\n1 1 1\n",
        HEADER + "4000000000 4000000000 1\n1 1 1\n",
        HEADER + "2000000000 3 1\n1 1 1\n",
        HEADER + "99999999999999999999999 3 1\n1 1 1\n",
        HEADER.replace("real", "complex") + "3 3 1\n1 1 1 2\n",
        HEADER.replace("coordinate", "array"),
        HEADER.replace("coordinate", "array") + "2 2\n1\n2\n3\n",
        HEADER.replace("coordinate", "array") + "1 1\n1\n2\n",
        HEADER.replace("coordinate", "array") + "2 1\n1 2\n",
        HEADER.replace("coordinate", "array") + "1 1 1\n1\n",
        HEADER.replace("coordinate", "array") + "1 1\nx\n",
        HEADER.replace("coordinate", "array") + "4000000000 4000000000\n1\n",
        HEADER.replace("coordinate real", "array pattern") + "1 1\n1\n",
        HEADER.replace("coordinate", "array").replace("general", "symmetric") + "2 2\n1\n2\n3\n4\n",
        HEADER.replace("coordinate", "array").replace("general", "skew-symmetric") + "2 2\n1\n2\n3\n",
        HEADER.replace("coordinate", "packed") + "1 1 1\n1 1 1\n",
        HEADER.replace("general", "odd") + "3 3 1\n1 1 1\n",
        HEADER.replace("general", "symmetric") + "3 2 1\n1 1 1\n",
    ],
)
def test_a_bad_matrix_market_file(tmp_path: Path, text: str) -> None:
    refused(tmp_path / "matrix.mtx", content=text)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"B": np.eye(3)}, "expected a sparse matrix of real numbers named A; it has B"),
        (
            {"A": np.eye(3), "B": scipy.sparse.csc_matrix(np.eye(3))},
            r"named A; it has A, B\. Save one, or choose another with key=NAME",
        ),
        ({"Problem": {"A": np.eye(3)}}, "real numbers named Problem.A; it has Problem.A"),
        ({}, "real numbers named A; it has nothing"),
        ({"A": np.eye(3)}, "expected a sparse matrix of real numbers named A; it has A"),
        ({"A": scipy.sparse.csc_matrix(np.eye(3) * 1j)}, "sparse matrix of real numbers named A"),
        (
            {"A": scipy.sparse.csc_matrix(np.eye(3)), "local_info": np.zeros((2, 3))},
            "local_info as a matrix of 3 rows",
        ),
        (
            {"A": scipy.sparse.csc_matrix(np.eye(3)), "local_info": np.zeros((3, 1))},
            "local_info as a matrix of 3 rows",
        ),
        (
            {"A": scipy.sparse.csc_matrix(np.eye(3)), "local_info": "words"},
            "local_info as a matrix of 3 rows",
        ),
    ],
    ids=[
        "no A",
        "dense A beside B",
        "dense Problem",
        "nothing",
        "dense A",
        "complex A",
        "few rows",
        "few columns",
        "text",
    ],
)
def test_a_bad_mat_file(tmp_path: Path, variables: dict[str, object], message: str) -> None:
    path = tmp_path / "graph.mat"
    scipy.io.savemat(path, variables)
    refused(path, message)


def whole_file(kind: str) -> bytes:
    buffer = io.BytesIO()
    matrix = scipy.sparse.csc_matrix(np.tri(6))
    ending, form = kind.split(maxsplit=1)
    if ending == ".mat":
        problem = {"title": "x", "A": matrix, "aux": {"A": matrix}}
        arrays = {
            "facebook": {"A": matrix, "local_info": np.ones((6, 7), dtype=np.uint16)},
            "compressed": {"A": matrix},
            "suitesparse": {"Problem": problem},
            "deepwalk": {"network": matrix, "group": scipy.sparse.csc_matrix(np.eye(6, 2))},
        }
        scipy.io.savemat(buffer, arrays[form], do_compression=form == "compressed")
    elif ending in (".mtx", ".mtx.gz"):
        scipy.io.mmwrite(buffer, np.tri(6) if form == "dense" else matrix)
    elif form in ("dia", "bsr"):
        scipy.sparse.save_npz(buffer, matrix.asformat(form), compressed=False)
    elif form == "compressed":
        np.savez_compressed(buffer, **edges_arrays())
    else:
        np.savez(buffer, **adjacency_arrays())
    return gzip.compress(buffer.getvalue()) if ending == ".mtx.gz" else buffer.getvalue()


KINDS = (
    *(".mat facebook", ".mat compressed", ".mat suitesparse", ".mat deepwalk"),
    *(".mtx sparse", ".mtx dense", ".mtx.gz sparse"),
    *(".npz compressed", ".npz stored", ".npz dia", ".npz bsr"),
)
WHOLE = {kind: whole_file(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_file_cut_off_anywhere(tmp_path: Path, kind: str) -> None:
    whole = WHOLE[kind]
    for length in np.linspace(0, len(whole) * 0.9, 40).astype(int):
        refused(tmp_path / f"graph{kind.split()[0]}", content=whole[:length])


@pytest.mark.parametrize("kind", WHOLE)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_damaged_bytes_is_refused_or_read(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    damaged = bytearray(WHOLE[kind])
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path = tmp_path / f"graph{kind.split()[0]}"
    path.write_bytes(damaged)
    with contextlib.suppress(FileFormatError):
        assert Graph.load(path).num_edges >= 0


def test_other_versions_of_mat_files(tmp_path: Path) -> None:
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"A": np.eye(3)}, format="4")
    refused(path, "no MATLAB file of version 5 to 7")
    newer = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" * 20
    refused(path, r"save it with save\('-v7'\)", newer)


def test_a_number_in_place_of_local_info(tmp_path: Path) -> None:
    path = tmp_path / "short.mat"
    scipy.io.savemat(path, {"A": scipy.sparse.csc_matrix(np.eye(3)), "local_info": np.uint8(3)})
    refused(path, "local_info as a matrix of 3 rows")
