"""NumPy archives in three layouts, which are distinguished by the names of their arrays.

* SciPy's ``save_npz``: a CSR, CSC, COO, BSR or DIA matrix.
* ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape``, the same names with ``attr_`` (features), and
  ``labels``: a CSR matrix with features and classes, as in the collections of citation graphs by O. Shchur et
  al. (2018).
* ``edges`` [E, 2], ``node_features``, ``node_labels``, ``train_masks``, ``val_masks``, ``test_masks`` [S, N]:
  an undirected graph stored once, as in the heterophilous graphs of O. Platonov et al. (2023). The result has
  both directions of every edge, each once.
"""

import ast
import math
import operator
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from onehop import config
from onehop.errors import FileFormatError
from onehop.files.formats.compressed import Entries, of_blocks, of_diagonals, outer_numbers
from onehop.files.formats.content import (
    FileContent,
    edges_from,
    features_from,
    labels_from,
    masks_from,
    matrix_from,
    weights_from,
)
from onehop.graph.edges import undirected

# Errors that numpy and zipfile raise for damaged files.
_DAMAGE = (ValueError, OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
# NumPy multiplies extents in 64 bits, even for arrays without elements.
_MOST_BYTES = 1 << 62
_MATRIX = ("data", "indices", "indptr", "shape")


class _Archive:
    """The arrays of an archive by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.names = {name.removesuffix(".npy") for name in archive.namelist()}

    def has(self, *names: str) -> bool:
        return self.names.issuperset(names)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.names:
            raise FileFormatError(
                f"{self.path}: the array {name!r} is missing; it has {_listed(self.names)}."
            )
        try:
            stored = self._archive.getinfo(f"{name}.npy").file_size
            if stored > config.physical_memory_bytes():
                raise FileFormatError(
                    f"{self.path}: the {stored} bytes of {name!r} would not fit into memory."
                )
            content = self._archive.read(f"{name}.npy")
        except FileFormatError:
            raise
        except (*_DAMAGE, KeyError) as error:
            raise FileFormatError(f"{self.path}: the array {name!r} cannot be read ({error}).") from error
        return _array(self.path, name, content)


def read(path: Path) -> FileContent:
    """Read a graph in one of the three layouts.

    Raises:
        FileFormatError: The file has none of these layouts, has object arrays, or is damaged.
    """
    with path.open("rb") as file:
        try:
            archive = _Archive(path, zipfile.ZipFile(file))
        except _DAMAGE as error:
            raise FileFormatError(
                f"{path}: not a whole .npz file ({error}). Fetch or write it again."
            ) from error
        if archive.has("format", "shape"):
            return _scipy_matrix(archive)
        if any(name.startswith("adj_") for name in archive.names):
            return _adjacency_and_attributes(archive)
        if archive.has("edges"):
            return _edges_and_features(archive)
    raise FileFormatError(
        f"{path}: expected the arrays of scipy.sparse.save_npz, or adj_data, adj_indices, ..., or edges; it "
        f"has {_listed(archive.names)}."
    )


def _scipy_matrix(archive: _Archive) -> FileContent:
    path = archive.path
    name = archive["format"].reshape(-1)[:1].tolist()
    kind = name[0].decode("ascii", errors="replace") if name and isinstance(name[0], bytes) else str(*name)
    shape = _shape(path, archive["shape"])
    entries = _scipy_entries(archive, kind, shape)
    return matrix_from(path, *entries, shape)


def _scipy_entries(archive: _Archive, kind: str, shape: tuple[int, int]) -> Entries:
    path, data = archive.path, archive["data"]
    if kind == "coo":
        if not archive.has("coords"):
            return archive["row"], archive["col"], data
        # SciPy plans to write this array in a later release.
        coords = archive["coords"]
        if coords.ndim != 2 or len(coords) != 2:
            raise FileFormatError(f"{path}: expected coords of shape [2, E], got {coords.shape}.")
        return coords[0], coords[1], data
    if kind == "dia":
        return of_diagonals(path, data, archive["offsets"], shape)
    if kind not in ("csr", "csc", "bsr"):
        raise FileFormatError(
            f"{path}: expected a CSR, CSC, COO, BSR or DIA matrix, got {kind!r}; save matrix.tocsr()."
        )
    inner, pointers = archive["indices"], archive["indptr"]
    if kind == "bsr":
        return of_blocks(path, data, inner, pointers, shape)
    outer = outer_numbers(path, pointers, inner.size, shape[0] if kind == "csr" else shape[1])
    return (outer, inner, data) if kind == "csr" else (inner, outer, data)


def _adjacency_and_attributes(archive: _Archive) -> FileContent:
    path = archive.path
    entries, shape = _csr(archive, "adj")
    content = matrix_from(path, *entries, shape)
    rows = shape[0]
    x = y = None
    num_classes = 0
    if archive.has("attr_data"):
        (node, feature, attributes), shape = _csr(archive, "attr")
        if shape[0] != rows or (feature < 0).any() or (feature >= shape[1]).any():
            raise FileFormatError(f"{path}: attr_indices do not fit {rows} nodes and attr_shape {shape}.")
        if shape[0] * shape[1] * 4 > config.physical_memory_bytes():
            raise FileFormatError(
                f"{path}: features of shape {shape} would not fit into memory; onehop keeps them as a dense "
                "table."
            )
        table = np.zeros(shape, dtype=np.float32)
        table[node, feature] = attributes
        x = features_from(path, table, rows)
    if archive.has("labels"):
        y, num_classes = labels_from(path, archive["labels"], rows)
    return replace(content, x=x, y=y, num_classes=num_classes)


def _edges_and_features(archive: _Archive) -> FileContent:
    path = archive.path
    edges = archive["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise FileFormatError(f"{path}: expected edges of shape [E, 2], got {edges.shape}.")
    x = y = None
    num_classes = 0
    if archive.has("node_features"):
        table = archive["node_features"]
        num_nodes = len(table) if table.ndim else 0
        x = features_from(path, table, num_nodes)
    elif archive.has("node_labels"):
        num_nodes = archive["node_labels"].size
    else:
        num_nodes = int(edges.max()) + 1 if edges.size else 0
    once = edges_from(path, edges[:, 0], edges[:, 1], (num_nodes, num_nodes))
    if archive.has("node_labels"):
        y, num_classes = labels_from(path, archive["node_labels"], num_nodes)
    masks = {}
    for name in ("train_masks", "val_masks", "test_masks"):
        if archive.has(name):
            masks[name] = masks_from(path, archive[name], num_nodes)
    if len({mask.shape for mask in masks.values()}) > 1 or len(masks) in (1, 2):
        raise FileFormatError(
            f"{path}: expected train_masks, val_masks and test_masks of one shape, or none of them."
        )
    return FileContent(
        edge_index=undirected(once, num_nodes),
        size=(num_nodes, num_nodes),
        x=x,
        y=y,
        num_classes=num_classes,
        **masks,
    )


def _csr(archive: _Archive, prefix: str) -> tuple[Entries, tuple[int, int]]:
    """Return rows, columns and values of a CSR matrix, and its shape. Columns are not checked yet."""
    data, indices, indptr, shape = (archive[f"{prefix}_{part}"] for part in _MATRIX)
    rows, columns = _shape(archive.path, shape)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise FileFormatError(
            f"{archive.path}: expected {prefix}_indices as a list of integers, got {indices.dtype} of shape "
            f"{indices.shape}."
        )
    row = outer_numbers(archive.path, indptr, indices.size, rows)
    return (row, indices, weights_from(archive.path, data, indices.size)), (rows, columns)


def _shape(path: Path, values: np.ndarray) -> tuple[int, int]:
    if values.shape != (2,) or values.dtype.kind not in "iu" or (values < 0).any():
        raise FileFormatError(
            f"{path}: expected two integers from 0 as the matrix's shape, got {values.tolist()!r}."
        )
    return int(values[0]), int(values[1])


def _array(path: Path, name: str, content: bytes) -> np.ndarray:
    """Return the array in the bytes of a ``.npy`` file, versions 1 to 3; numpy.lib.format has the format."""
    length_bytes = 2 if content[6:7] == b"\x01" else 4
    begin = 8 + length_bytes
    end = begin + int.from_bytes(content[8:begin], "little")
    try:
        if content[:6] != b"\x93NUMPY" or end > len(content):
            raise ValueError("no header")
        header = ast.literal_eval(content[begin:end].decode("utf-8").strip())
        dtype = np.dtype(header["descr"])
        shape = tuple(operator.index(extent) for extent in header["shape"])
        count = math.prod(shape)
        extents = math.prod(max(extent, 1) for extent in shape)
        if min(shape, default=0) < 0 or len(shape) > 3 or extents * dtype.itemsize > _MOST_BYTES:
            raise ValueError(f"shape {shape}")
        if dtype.shape or dtype.itemsize == 0:
            raise ValueError(f"elements of {dtype}")
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise FileFormatError(f"{path}: the array {name!r} has a damaged header ({error}).") from error
    if dtype.hasobject:
        raise FileFormatError(
            f"{path}: the array {name!r} holds Python objects, which are never unpickled. Store it as "
            "numbers."
        )
    if count * dtype.itemsize != len(content) - end:
        raise FileFormatError(
            f"{path}: the array {name!r} is truncated or damaged: {dtype} of shape {shape} does not take up "
            f"the {len(content) - end} bytes that are there."
        )
    if count == 0:
        return np.zeros(shape, dtype=dtype)
    order: Literal["F", "C"] = "F" if header.get("fortran_order") else "C"
    return np.frombuffer(content, dtype=dtype, offset=end).reshape(shape, order=order)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)[:12]) or "no arrays"
