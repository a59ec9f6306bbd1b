"""Damaged archives of NumPy: an error that names the file, and nothing is unpickled."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from .test_damaged_files import refused
from .test_files import adjacency_arrays, edges_arrays


def save(path: Path, arrays: dict[str, object]) -> Path:
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def scipy_arrays(kind: str) -> dict[str, np.ndarray]:
    if kind == "dok":
        return scipy_arrays("coo") | {"format": np.array(kind)}
    buffer = io.BytesIO()
    scipy.sparse.save_npz(buffer, scipy.sparse.csr_array(np.eye(3)).asformat(kind))
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as arrays:
        return dict(arrays)


Change = tuple[dict[str, object], str]
ADJACENCY: list[Change] = [
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
]
EDGES: list[Change] = [
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
]
SCIPY: list[tuple[str, dict[str, object], str]] = [
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
]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [*(("adjacency", *each) for each in ADJACENCY), *(("edges", *each) for each in EDGES), *SCIPY],
    ids=str,
)
def test_bad_arrays(tmp_path: Path, kind: str, changes: dict[str, object], message: str) -> None:
    layouts = {"adjacency": adjacency_arrays, "edges": edges_arrays}
    whole = layouts[kind]() if kind in layouts else scipy_arrays(kind)
    refused(save(tmp_path / "graph.npz", whole | changes), message)


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


def test_an_archive_that_would_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onehop.config.physical_memory_bytes", lambda: 100)
    refused(save(tmp_path / "graph.npz", edges_arrays()), "would not fit into memory")
