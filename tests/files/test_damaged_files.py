"""Damaged and foreign files: an error that names the file, never another library's or a crash."""

import contextlib
import gzip
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings, strategies as st

from onehop import FileFormatError, Graph, files
from onehop.files.formats import number_lines

from .test_files import adjacency_arrays, edges_arrays


def refused(path: Path, message: str | None = None) -> str:
    with pytest.raises(FileFormatError, match=message) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", [".txt", ".npz", ".mtx", ".mat", ".csv.gz", ".unknown"])
def test_a_missing_file(tmp_path: Path, ending: str) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        Graph.load(tmp_path / f"missing{ending}")


@pytest.mark.parametrize("name", ["graph.pkl", "graph.pt", "graph", "graph.gz", "graph.npz.gz", "graph.npy"])
def test_an_unknown_kind_of_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"0 1\n")
    refused(path, r"ends in one of \.mtx, \.mtx\.gz, \.npz")


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
    path = tmp_path / f"graph{ending}"
    path.write_bytes(content)
    refused(path)


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
    path = tmp_path / "edges.txt"
    path.write_text(text)
    refused(path, message)


def test_a_bad_line_deep_in_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_lines, "_BLOCK_BYTES", 100)
    path = tmp_path / "edges.csv"
    path.write_text("a,b\n" + "1,2\n" * 500 + "1,2,3\n" + "1,2\n" * 500)
    refused(path, "line 502: expected 2 fields")


def test_an_endless_line(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1 " * (1 << 20))
    refused(path, "a line is longer than 1 MiB")


def test_a_truncated_compressed_list(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt.gz"
    whole = gzip.compress(b"".join(b"%d %d\n" % (i, i * 7919 % 9973) for i in range(9973)))
    for length in (5, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:length])
        refused(path, "compressed data are damaged")


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
    path = tmp_path / "matrix.mtx"
    path.write_text(text)
    refused(path)


def save(path: Path, arrays: dict[str, object]) -> Path:
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adj_data": None}, "'adj_data' is missing; it has adj_indices"),
        ({"adj_shape": None}, "'adj_shape' is missing"),
        ({"adj_shape": np.array([3])}, "two integers from 0 as the matrix's shape"),
        ({"adj_shape": np.array([3.0, 3.0])}, "two integers"),
        ({"adj_shape": np.array([-3, 3])}, "two integers from 0"),
        ({"adj_shape": np.array([-1, 3]), "adj_indptr": np.empty(0, int)}, "two integers from 0"),
        ({"adj_shape": np.array([3, 2**40])}, "not between 0 and"),
        ({"adj_shape": np.array([3, 2])}, r"source 2 of edge 1 is not in \[0, 2\)"),
        ({"adj_indices": np.array([1, -2, 0])}, "source -2 of edge 1"),
        ({"adj_indices": np.array([1.0, 2.0, 0.0])}, "list of integers"),
        ({"adj_indices": np.array([[1, 2, 0]])}, "list of integers"),
        ({"adj_indices": np.array([1, 2])}, "ascend from 0 to the 2 entries"),
        ({"adj_indptr": np.array([0, 2, 1, 3])}, "ascend"),
        ({"adj_indptr": np.array([0, 2, 3])}, "4 integers as row pointers"),
        ({"adj_indptr": np.array([0, 2**62, -(2**62), 3])}, "ascend"),
        ({"adj_indptr": np.array([0, 2, 2, 2**63 + 3], dtype=np.uint64)}, "ascend"),
        ({"adj_data": np.ones(2)}, "one real number for each of 3 edges"),
        ({"adj_data": np.ones(3, dtype=complex)}, "one real number"),
        ({"adj_data": np.array(["a", "b", "c"])}, "one real number"),
        (
            {"adj_data": np.array([1, None, 2], dtype=object)},
            "holds Python objects, which are never unpickled",
        ),
        ({"attr_shape": np.array([2, 4]), "attr_indptr": np.array([0, 1, 3])}, "do not fit 3 nodes"),
        ({"attr_shape": np.array([3, 2**45])}, "not fit into memory"),
        ({"attr_indices": np.array([4, 0, 1])}, "do not fit 3 nodes"),
        ({"attr_indices": np.array([-1, 0, 1])}, "do not fit 3 nodes"),
        ({"labels": np.array([1, 0])}, "expected a label, an integer, for each of 3 nodes"),
        ({"labels": np.array([1.0, 0.5, 0])}, "expected a label, an integer"),
        ({"labels": np.array([1, 0, -7])}, "got -7 to 1"),
        ({"labels": np.array([1, 0, 2**40])}, "below the 3 nodes"),
        ({"labels": np.array([{"a": 1}, 2, 3], dtype=object)}, "never unpickled"),
    ],
    ids=str,
)
def test_bad_adjacency_arrays(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    refused(save(tmp_path / "graph.npz", adjacency_arrays() | changes), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": np.array([0, 1])}, r"shape \[E, 2\]"),
        ({"edges": np.array([[0, 1, 2]])}, r"shape \[E, 2\]"),
        ({"edges": np.array([[0.0, 1.0]])}, "expected integers as node numbers"),
        ({"edges": np.array([[0, 4]])}, "destination 4 of edge 0"),
        ({"edges": np.array([[-1, 0]])}, "source -1 of edge 0"),
        ({"edges": np.array([[0, 2**60]]), "node_features": None, "node_labels": None}, "not between 0 and"),
        ({"edges": np.array([[0, 1]], dtype=object)}, "never unpickled"),
        ({"node_features": np.zeros(4)}, "features as 4 rows"),
        ({"node_features": np.array(1.0)}, "features as 0 rows|not in"),
        ({"node_features": np.full((4, 1), "x")}, "rows of numbers"),
        ({"node_labels": np.zeros(5, dtype=int)}, "a label, an integer"),
        ({"train_masks": np.zeros((2, 3), dtype=bool)}, "expected masks"),
        ({"train_masks": np.full((2, 4), 2)}, "expected masks"),
        ({"train_masks": np.zeros((1, 4), dtype=bool)}, "of one shape"),
        ({"train_masks": None}, "of one shape, or none"),
        ({"edges": None}, "expected the arrays of"),
    ],
    ids=str,
)
def test_bad_edges_arrays(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    refused(save(tmp_path / "graph.npz", edges_arrays() | changes), message)


def scipy_arrays(kind: str) -> dict[str, np.ndarray]:
    if kind == "dok":
        return scipy_arrays("coo") | {"format": np.array(kind)}
    buffer = io.BytesIO()
    scipy.sparse.save_npz(buffer, scipy.sparse.csr_array(np.eye(3)).asformat(kind))
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("csr", {"indptr": np.array([0, 1, 2, 99])}, "ascend"),
        ("csr", {"indices": np.array([0, 1, 3])}, "source 3"),
        ("csc", {"indices": np.array([0, -1, 2])}, "destination -1"),
        ("csr", {"indices": None}, "'indices' is missing"),
        ("coo", {"row": np.array([0, 1])}, "as many sources as destinations"),
        ("coo", {"row": np.array([0, 1, 5])}, "destination 5"),
        ("coo", {"col": np.array([0.5, 1, 2])}, "expected integers"),
        ("coo", {"data": np.ones(7)}, "one real number"),
        ("coo", {"shape": np.array([2**31, 3])}, "not between 0 and"),
        ("coo", {"shape": np.array([2**31 - 1, 3])}, "identifiers rather than node numbers"),
        ("coo", {"coords": np.zeros((3, 3), int)}, r"coords of shape \[2, E\]"),
        ("coo", {"coords": np.zeros(2, int)}, r"coords of shape \[2, E\]"),
        ("bsr", {"data": np.ones((3, 1))}, "real numbers in 3 dimensions"),
        ("bsr", {"data": np.ones((3, 1, 1), complex)}, "real numbers in 3 dimensions"),
        ("bsr", {"data": np.ones((3, 0, 1))}, "blocks of 0 x 1 do not divide"),
        ("bsr", {"data": np.ones((3, 2, 1))}, "blocks of 2 x 1 do not divide a matrix of 3 x 3"),
        ("bsr", {"data": np.ones((3, 3, 3))}, "2 integers as row pointers"),
        ("bsr", {"data": np.ones((2, 1, 1))}, "ascend from 0 to the 2 entries"),
        ("bsr", {"indices": np.array([0, 1, 3])}, r"source 3 of edge 2 is not in \[0, 3\)"),
        ("bsr", {"indices": np.array([0, 1, 2**63], np.uint64)}, "source 9223372036854775808"),
        ("bsr", {"indices": np.array([[0, 1, 2]])}, "as many sources as destinations"),
        ("bsr", {"shape": np.array([2**62, 2**62])}, "4611686018427387905 integers as row pointers"),
        ("bsr", {"shape": np.array([3, 2**62])}, "4611686018427387904 sources are not between"),
        ("dia", {"data": np.ones(3)}, "real numbers in 2 dimensions"),
        ("dia", {"data": np.full((1, 3), "x")}, "real numbers in 2 dimensions"),
        ("dia", {"offsets": np.array([0, 1])}, "1 different integers as offsets"),
        ("dia", {"offsets": np.array([0.0])}, "1 different integers as offsets"),
        ("dia", {"offsets": np.array([0, 0]), "data": np.ones((2, 3))}, "2 different integers"),
        ("dia", {"shape": np.array([2**62, 2**62])}, "4611686018427387904 sources are not between"),
        ("dok", {}, r"CSR, CSC, COO, BSR or DIA matrix, got 'dok'; save matrix.tocsr\(\)"),
        ("csr", {"format": np.array(3)}, "got '3'"),
    ],
    ids=str,
)
def test_bad_scipy_arrays(tmp_path: Path, kind: str, changes: dict[str, object], message: str) -> None:
    refused(save(tmp_path / "graph.npz", scipy_arrays(kind) | changes), message)


def test_a_pickle_inside_an_archive_is_never_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (ran,))

    path = tmp_path / "graph.npz"
    np.savez(path, edges=np.array([Payload()], dtype=object), node_labels=np.array([Payload()], dtype=object))
    refused(path, "never unpickled")
    assert not ran.exists()


def test_a_header_that_asks_for_more_memory_than_is_stored(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<i8", "fortran_order": False, "shape": (2**30, 2)}
    )
    path = tmp_path / "graph.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.npy", buffer.getvalue() + b"\0" * 64)
    refused(path, "is truncated")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8' ",
        "{'descr': '<i8', 'shape': (-1, 2)}",
        "{'descr': '<i8', 'shape': (0, 1, 1, 1)}",
        "{'descr': '<i8', 'shape': (0, 2147483648, 2147483648)}",
        "{'descr': '<S0', 'shape': (2147483648, 2147483648)}",
        "{'descr': '2i8', 'shape': (0, 2)}",
    ],
)
def test_an_array_with_a_broken_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "graph.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.npy", b"\x93NUMPY\x01\x00%c\x00" % len(header) + header.encode())
    refused(path, "damaged header")


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
    path = tmp_path / f"graph{kind.split()[0]}"
    for length in np.linspace(0, len(whole) * 0.9, 40).astype(int):
        path.write_bytes(whole[:length])
        refused(path)


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
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" * 20)
    refused(path, r"save it with save\('-v7'\)")


def test_a_number_in_place_of_local_info(tmp_path: Path) -> None:
    path = tmp_path / "short.mat"
    scipy.io.savemat(path, {"A": scipy.sparse.csc_matrix(np.eye(3)), "local_info": np.uint8(3)})
    refused(path, "local_info as a matrix of 3 rows")


def test_an_archive_that_would_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onehop.config.physical_memory_bytes", lambda: 100)
    refused(save(tmp_path / "graph.npz", edges_arrays()), "would not fit into memory")
