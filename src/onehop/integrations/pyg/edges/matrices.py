"""Sparse matrices as edges: torch's CSR, CSC and COO; rows are destinations, columns are sources.

A matrix's graph is made from its index arrays and found again by their memory, because PyG makes new matrices
of the same arrays and of other values. Every matrix has its own version counter, so that none tells what was
written through another one. So an unchanged matrix that was met before is taken to have the same edges; for
every other matrix the arrays are compared, by fingerprints of all of their contents.

Values are never kept. Where all of them are 1, as PyG fills them in, the messages need no weight. That is
checked by a fingerprint of all of them, at every call.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from onehop import config, native
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import read_address, readable
from onehop.ops.contexts import WRAPPED, in_older_vmap, is_wrapped, wraps

LAYOUTS = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_coo))
"""Layouts that PyG accepts for an adjacency."""

_STRUCTURE = "edges of a sparse matrix"
_MATRIX = 2


@dataclass(slots=True, weakref_slot=True, eq=False)
class Structure:
    """The edges of sparse matrices with the same index arrays, in the order of their values.

    Attributes:
        contents: Fingerprints of the arrays.
        derived: What was made from these edges and a matrix's values, by keys of who made it.
    """

    contents: tuple[int, ...]
    derived: dict[Hashable, Any] = field(default_factory=dict)
    _graph: Graph | None = None
    # The matrices that have these edges, and their versions when that was seen.
    _matrices: Any = field(default_factory=WeakIdKeyDictionary)
    _of_ones: dict[torch.dtype, int] = field(default_factory=dict)
    _distinct: bool | None = None

    def graph(self, matrix: Tensor) -> Graph | None:
        """The edges as a graph, made at the first call.

        Args:
            matrix: One that has these edges.

        Returns:
            None if an index is out of range, the arrays contradict each other, or a COO matrix is not in
            order.
        """
        if self._graph is None:
            self._graph = _graph_of(matrix)
        return self._graph

    def note(self, matrix: Tensor) -> None:
        """Notes that a matrix, as it is, has these edges."""
        self._matrices[matrix] = matrix._version

    def is_noted(self, matrix: Tensor) -> bool:
        """Return whether a matrix was noted, and has not been written to as far as torch counts it."""
        return not config.full_check() and self._matrices.get(matrix) == matrix._version

    def are_ones(self, values: Tensor) -> bool:
        """Return whether every one of these values, one an edge, is 1."""
        if not values.is_contiguous():
            return False
        known = self._of_ones.get(values.dtype)
        if known is None:
            # Two entries tell most weights from ones, so that no ones have to be made for them.
            if values.numel() and not (float(values[0]) == 1 and float(values[-1]) == 1):
                return False
            known = self._of_ones[values.dtype] = fingerprint(torch.ones_like(values, device="cpu"))
        return fingerprint(values) == known

    def has_distinct_entries(self, graph: Graph) -> bool:
        """Return whether columns ascend in every row, each once, as torch assumes in gradients to values.

        Args:
            graph: That of these edges.
        """
        if self._distinct is None:
            ascends = torch.ones(graph.num_edges + 1, dtype=torch.bool, device="cpu")
            torch.gt(graph.col[1:], graph.col[:-1], out=ascends[1 : max(graph.num_edges, 1)])
            ascends[graph.rowptr] = True
            self._distinct = bool(ascends.all())
        return self._distinct


def is_matrix(edge_index: Any) -> bool:
    """Return whether edges are given as a sparse matrix of torch's own."""
    return type(edge_index) is Tensor and edge_index.layout in LAYOUTS


def matrix_reason(matrix: Tensor) -> str | None:
    """Return why the edges of a sparse matrix cannot be taken; None if they can. No contents are read."""
    if is_wrapped(matrix) or (in_older_vmap() and wraps(matrix)):
        return WRAPPED
    if not matrix.is_cpu:
        return "edge_index is a sparse matrix on another device than the CPU, for which PyG has its own code"
    if matrix.dim() - matrix.dense_dim() != _MATRIX or matrix.dense_dim() > 1:
        return "edge_index is a sparse matrix with further dimensions"
    if matrix.layout is torch.sparse_coo and not matrix.is_coalesced():
        return "edge_index is a sparse matrix whose entries have to be summed first (coalesced)"
    if matrix.layout is torch.sparse_coo and not matrix.indices().is_contiguous():
        # Torch mixes such indices up where it makes CSR of them.
        return "edge_index is a sparse matrix whose indices are not contiguous"
    if matrix.is_inference():
        return "edge_index is a sparse matrix that was made in inference mode, and so cannot be recognised"
    return None


def structure_of(matrix: Tensor) -> Structure:
    """The edges of a sparse matrix for which :func:`matrix_reason` returns None: found, or noted."""
    arrays = index_arrays(matrix)
    rest = (_STRUCTURE, matrix.layout, matrix.shape)
    found: Structure | None = remembered(arrays[0], key=rest, any_owner=True)
    if found is not None and found.is_noted(matrix):
        return found
    contents = tuple(fingerprint(array) for array in arrays)
    if found is None or found.contents != contents:
        found = Structure(contents)
        CACHE.store(arrays[0], rest, found, any_owner=True)
    found.note(matrix)
    return found


def index_arrays(matrix: Tensor) -> tuple[Tensor, ...]:
    """The arrays that say where a sparse matrix has entries; the first has one column for each entry."""
    return _ARRAYS[matrix.layout](matrix)


def of_arrays(like: Tensor, arrays: tuple[Tensor, ...], values: Tensor) -> Tensor:
    """A sparse matrix of these arrays, with the layout and shape of another one; nothing is checked.

    Args:
        like: In CSR or COO.
        arrays: As :func:`index_arrays` gives them.
        values: [E].
    """
    shape = like.shape
    if like.layout is torch.sparse_csr:
        col, rowptr = arrays
        return torch.sparse_csr_tensor(
            rowptr, col, values, shape, device=values.device, check_invariants=False
        )
    return torch.sparse_coo_tensor(
        arrays[0], values, shape, device=values.device, is_coalesced=True, check_invariants=False
    )


def fingerprint(array: Tensor) -> int:
    """A hash of all contents of a tensor on the CPU."""
    array = array.detach().contiguous()
    return native.extension.fingerprint(read_address(array), array.nbytes, native.threads())


_ARRAYS: dict[torch.layout, Callable[[Tensor], tuple[Tensor, ...]]] = {
    torch.sparse_csr: lambda matrix: (matrix.col_indices(), matrix.crow_indices()),
    torch.sparse_csc: lambda matrix: (matrix.row_indices(), matrix.ccol_indices()),
    torch.sparse_coo: lambda matrix: (matrix.indices(),),
}


def _graph_of(matrix: Tensor) -> Graph | None:
    num_dst, num_src = matrix.shape[:_MATRIX]
    arrays = [readable(array) for array in index_arrays(matrix)]
    try:
        if matrix.layout is torch.sparse_csr:
            return Graph.from_csr(arrays[1], arrays[0], num_src)
        if matrix.layout is torch.sparse_csc:
            return Graph.from_csr(arrays[1], arrays[0], num_dst).transpose()
        graph = Graph.from_edge_index(arrays[0].flip(0), size=(num_src, num_dst))
    except ArgumentError:
        return None
    # A matrix may be marked as coalesced although it is not, and torch believes the mark.
    return graph if graph.perm is None else None
