"""The edges of torch's sparse matrices, recognised by their index arrays: CSR, CSC and COO.

Rows are destinations, columns are sources. A matrix and its index arrays have version counters, which do not
show writes through other tensors with the same memory. So a matrix that was used before is taken to have the
same edges if the versions are the same and no other tensor has the memory, and so is one whose arrays are
untouched copies of cached ones. For every other matrix the contents of all arrays are compared, by
fingerprints. So a COO matrix is also recognised if it is a copy of another one, or its transpose, which torch
makes anew in each backward pass.
"""

import functools
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from onehop import config, native
from onehop.graph import Graph
from onehop.graph.contents import Noted, fingerprint
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import lend, note_copy, original, readable, source_of

Contents = tuple[int, ...]


@dataclass(slots=True, eq=False, weakref_slot=True)
class MatrixEdges:
    """The edges of matrices with the same index arrays, and of their transposes.

    Attributes:
        contents: Fingerprints of the arrays; of a COO matrix, of its rows and its columns.
        graph: The graph of the edges, in the order of the values; None until it was made.
        turned: The graph of the transposes' edges; None until it was made.
        distinct: Whether columns ascend in every row, each once, of the edges (False) and of their transpose
            (True), where that was checked.
        indices: Copies of a COO matrix's indices, of the edges (False) and of their transpose (True), where
            one was made.
        derived: Results derived from the edges or their transpose and from values, with a fingerprint of the
            values, by key.
        matrices: The matrices that have these edges, and the versions of each when that was checked.
    """

    contents: Contents
    graph: Graph | None = None
    turned: Graph | None = None
    distinct: dict[bool, bool] = field(default_factory=dict)
    indices: dict[bool, Tensor] = field(default_factory=dict)
    derived: dict[Hashable, tuple[Hashable, Any]] = field(default_factory=dict)
    matrices: Any = field(default_factory=WeakIdKeyDictionary)


class Recognised(NamedTuple):
    """The edges of a matrix, and whether the matrix is a transpose of those that they belong to."""

    edges: MatrixEdges
    is_transposed: bool


# By the copies of COO matrices' indices: their edges, which hold them, and whether they are the transpose's.
_by_indices = WeakIdKeyDictionary()
# Edges of COO matrices by the shape and the contents.
_by_contents: "weakref.WeakValueDictionary[tuple[torch.Size, Contents], MatrixEdges]" = (
    weakref.WeakValueDictionary()
)


def arrays_of(matrix: Tensor) -> dict[str, Tensor]:
    """The index arrays of a sparse matrix by name; the first has one column for each entry."""
    if matrix.layout is torch.sparse_csr:
        return {"col": matrix.col_indices(), "rowptr": matrix.crow_indices()}
    if matrix.layout is torch.sparse_csc:
        return {"row": matrix.row_indices(), "colptr": matrix.ccol_indices()}
    return {"indices": matrix._indices()}


def recognised(matrix: Tensor) -> Recognised:
    """Return the edges of a sparse matrix in a layout of :func:`arrays_of`, cached or new.

    The graph of new edges is not made yet: see :func:`graph_of`.
    """
    arrays = tuple(arrays_of(matrix).values())
    is_csc = matrix.layout is torch.sparse_csc
    # A CSC matrix has the arrays of its transpose in CSR.
    shape = matrix.shape[1::-1] if is_csc else matrix.shape[:2]
    key = ("edges of a sparse matrix", matrix.layout is torch.sparse_coo, shape)
    known = _known(matrix, arrays, key)
    if known is None:
        versions, noted = _versions(matrix, arrays), Noted(*arrays, any_owner=True)
        known = _with_contents(arrays, shape)
        CACHE.store(noted, key, known)
        known.edges.matrices[matrix] = versions
    return Recognised(known.edges, is_csc != known.is_transposed)


def transposed(matrix: Tensor) -> Tensor | None:
    """The transpose of a COO matrix, [N, K], as torch makes it: with a copy of the values, and not coalesced.

    None if the matrix was not multiplied before.
    """
    indices = matrix._indices()
    known = _known(matrix, (indices,), ("edges of a sparse matrix", True, matrix.shape))
    if known is None or matrix.is_inference():
        return None
    edges, becomes_transposed = known.edges, not known.is_transposed
    if becomes_transposed not in edges.indices:
        made = edges.indices[becomes_transposed] = readable(indices).flip(0)
        _by_indices[made] = weakref.ref(edges), becomes_transposed
    values = matrix._values()
    copy = native.empty(tuple(values.shape), values.dtype).copy_(values)
    note_copy(copy, source_of(values))
    lent = lend(edges.indices[becomes_transposed])
    return torch.sparse_coo_tensor(lent, copy, matrix.shape[::-1], device="cpu", check_invariants=False)


def _known(matrix: Tensor, arrays: tuple[Tensor, ...], key: Hashable) -> Recognised | None:
    """The cached edges of a matrix with these index arrays, if they still are its edges."""
    # A cached array has no other owner, so an untouched copy has its contents.
    sources = tuple(map(original, arrays))
    are_copies = all(source is not array for source, array in zip(sources, arrays, strict=True))
    if are_copies and sources[0] in _by_indices:
        reference, is_transposed = _by_indices[sources[0]]
        edges: MatrixEdges | None = reference()
        if edges is not None:
            return Recognised(edges, is_transposed)
    known: Recognised | None = remembered(*arrays, key=key, any_owner=True)
    if known is None or (are_copies and not config.full_check()):
        return known
    versions = _versions(matrix, arrays)
    if known.edges.matrices.get(matrix) == versions and not config.full_check():
        uses = _uses_of_own(matrix.layout is torch.sparse_coo, _is_in_kernel(_VIEWS))
        # A loop, because a generator is a call for each array, and small graphs notice.
        is_own = uses is not None
        for array in arrays:
            is_own = is_own and _use_count(array.untyped_storage()._cdata) == uses
        if is_own:
            return known
    if _turned_if(known.is_transposed, _contents_of(arrays)) != known.edges.contents:
        return None
    known.edges.matrices[matrix] = versions
    return known


def _versions(matrix: Tensor, arrays: tuple[Tensor, ...]) -> tuple[int, ...]:
    return matrix._version, *[array._version for array in arrays]


_use_count: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda _: 0)


# Inside a kernel, torch hands out the arrays of a matrix themselves, elsewhere views of them.
_VIEWS = torch._C.DispatchKey.ADInplaceOrView
_is_in_kernel: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded


@functools.cache
def _uses_of_own(is_coo: bool, in_kernel: bool) -> int | None:
    """The number of users of an index array's storage if one matrix has it; None if torch does not tell.

    It is counted for a matrix of one entry, once in a kernel and once elsewhere.
    """
    ends, ones = torch.zeros(2, 1, dtype=torch.int64, device="cpu"), torch.ones(1, device="cpu")
    matrix = torch.sparse_coo_tensor(ends, ones, (1, 1), device="cpu", check_invariants=False)
    del ends
    matrix = matrix if is_coo else matrix.to_sparse_csr()
    array = arrays_of(matrix)["indices" if is_coo else "rowptr"]
    return _use_count(array.untyped_storage()._cdata) or None


def graph_of(matrix: Tensor, known: Recognised, turned: bool = False) -> Graph:
    """The graph of a sparse matrix, cached or new, in the order of the values: rows are destinations.

    Args:
        matrix: The matrix.
        known: What :func:`recognised` returns for it.
        turned: Whether columns are destinations instead.

    Raises:
        ArgumentError: A number is out of range, or the arrays contradict each other.
    """
    edges, is_transposed = known
    if edges.graph is None:
        edges.graph = _made(matrix, is_transposed)
    if is_transposed == turned:
        return edges.graph
    if edges.turned is None:
        edges.turned = edges.graph.transpose()
    return edges.turned


def _contents_of(arrays: tuple[Tensor, ...]) -> Contents:
    parts = arrays[0].unbind() if len(arrays) == 1 else arrays
    return tuple(fingerprint(part.detach().contiguous()) for part in parts)


def _turned_if(is_transposed: bool, contents: Contents) -> Contents:
    return contents[::-1] if is_transposed else contents


def _with_contents(arrays: tuple[Tensor, ...], shape: torch.Size) -> Recognised:
    """The edges of another COO matrix with the same contents, or of its transpose, else new ones.

    Args:
        arrays: The index arrays.
        shape: Of the matrix; of the transpose for CSC.
    """
    contents = _contents_of(arrays)
    # Edges hold the arrays that were derived from them, which thus must not be the key to them.
    if len(arrays) > 1 or original(arrays[0]) is not arrays[0]:
        return Recognised(MatrixEdges(contents), False)
    for is_transposed in (False, True):
        edges = _by_contents.get((shape[:: -1 if is_transposed else 1], _turned_if(is_transposed, contents)))
        if edges is not None:
            return Recognised(edges, is_transposed)
    edges = _by_contents[shape, contents] = MatrixEdges(contents)
    return Recognised(edges, False)


def _made(matrix: Tensor, is_transposed: bool) -> Graph:
    """The graph of a matrix's edges, or of its transpose's."""
    rows, columns = matrix.shape[1::-1] if is_transposed else matrix.shape[:2]
    arrays = tuple(map(readable, arrays_of(matrix).values()))
    if len(arrays) == 2:
        return Graph.from_csr(arrays[1], arrays[0], columns)
    ends = arrays[0] if is_transposed else arrays[0].flip(0)
    return Graph.from_edge_index(ends, size=(columns, rows))
