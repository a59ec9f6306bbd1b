"""Sparse matrices of torch's own: CSR, CSC and COO."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from onehop import config, native
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import original, read_address, readable
from onehop.integrations.pyg.edges.adjacency import Adjacency, Arrays, Kept
from onehop.integrations.pyg.leave import EXACT, need
from onehop.ops.contexts import WRAPPED, wraps

LAYOUTS = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_coo))
"""Layouts that PyG accepts for a sparse matrix."""

_MATRIX = 2
_IT = "edge_index is a sparse matrix"
_DENSE = f"{_IT} with further dimensions"
_DISTINCT = "torch gives gradients to values of distinct, ascending columns in every row"


@dataclass(slots=True, eq=False)
class _Edges:
    """The edges of matrices of torch's own with the same index arrays.

    Attributes:
        contents: Fingerprints of the arrays.
        graph: Their graph, once it was made.
        distinct: Whether columns ascend in every row, each once; None until that was checked.
        derived: Results derived from these edges and values, with a fingerprint of the values, by key.
        matrices: The matrices that have these edges, and their versions when that was checked.
    """

    contents: tuple[int, ...]
    graph: Graph | None = None
    distinct: bool | None = None
    derived: dict[Hashable, tuple[Hashable, Kept]] = field(default_factory=dict)
    matrices: Any = field(default_factory=WeakIdKeyDictionary)


class TorchMatrix(Adjacency):
    """A sparse matrix of torch's own.

    Every matrix has its own version counter, which does not show writes through other matrices. A matrix that
    was used before and has its version is taken to have the same edges, and so is one whose arrays are
    untouched copies of cached ones. For every other matrix the arrays are compared, by fingerprints of all of
    their contents. So are the values of derived results.
    """

    __slots__ = ("_known",)

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self._known: _Edges | None = None

    @property
    def values(self) -> Tensor:
        """[E] or [E, D]."""
        values: Tensor = self.matrix.values()
        return values

    def check(self) -> None:
        """Raises Leave where the edges cannot be taken; no contents are read."""
        matrix = self.matrix
        need(not wraps(matrix), WRAPPED)
        need(matrix.is_cpu, f"{_IT} on another device than the CPU, for which PyG has its own code")
        dense = matrix.dense_dim()
        need(matrix.dim() == _MATRIX + dense and dense <= 1, _DENSE)
        if self.is_coo:
            need(matrix.is_coalesced(), f"{_IT} whose entries have to be summed first (coalesced)")
            # torch mixes up other indices where it converts them to CSR.
            need(matrix.indices().is_contiguous(), f"{_IT} whose indices are not contiguous")
        need(not matrix.is_inference(), f"{_IT} that was made in inference mode, and so cannot be recognised")

    def find(self) -> Graph | None:
        """Return the graph, cached or new."""
        edges = self._edges()
        if edges.graph is None:
            edges.graph = self._graph()
        return edges.graph

    def check_gradients(self) -> None:
        """Raises Leave where values need gradients that torch does not compute, or computes differently."""
        if not torch.is_grad_enabled() or not self.values.requires_grad:
            return
        graph, edges = self.graph(), self._edges()
        is_csc = self.matrix.layout is torch.sparse_csc
        need(not is_csc, "torch gives no gradients to the values of a CSC matrix")
        if edges.distinct is None:
            ascends = torch.ones(graph.num_edges + 1, dtype=torch.bool, device="cpu")
            torch.gt(graph.col[1:], graph.col[:-1], out=ascends[1 : max(graph.num_edges, 1)])
            ascends[graph.rowptr] = True
            edges.distinct = bool(ascends.all())
        need(edges.distinct, _DISTINCT)

    def _edges(self) -> _Edges:
        """The record of the edges; looked up once."""
        if self._known is None:
            self._known = self._recognised()
        return self._known

    def _recognised(self) -> _Edges:
        matrix, arrays = self.matrix, tuple(self._arrays().values())
        key = ("edges of a sparse matrix", matrix.layout, matrix.shape)
        record: _Edges | None = remembered(*arrays, key=key, any_owner=True)
        if record is not None and not config.full_check():
            if record.matrices.get(matrix) == matrix._version:
                return record
            # A cached array has no other owner, so an untouched copy has its contents.
            if all(original(array) is not array for array in arrays):
                return record
        version, noted = matrix._version, Noted(*arrays, any_owner=True)
        contents = tuple(map(fingerprint, arrays))
        if record is None or record.contents != contents:
            record = _Edges(contents)
            CACHE.store(noted, key, record)
        record.matrices[matrix] = version
        return record

    def _operand(self, x: Tensor, reduce: str, weighted: bool) -> tuple[Tensor | None, bool]:
        values = self.values
        need(values.dim() == 1, _DENSE)
        need(x.dim() == _MATRIX and values.dtype is x.dtype)
        # torch adds up in no other dtypes. PyG computes a mean over CSC as a sum, which it divides.
        is_sum = reduce == "sum" or (reduce == "mean" and self.matrix.layout is torch.sparse_csc)
        need(not is_sum or x.dtype in EXACT)
        self.check_gradients()
        return values, values.requires_grad and torch.is_grad_enabled()

    def _arrays(self) -> Arrays:
        matrix = self.matrix
        if matrix.layout is torch.sparse_csr:
            return {"col": matrix.col_indices(), "rowptr": matrix.crow_indices()}
        if matrix.layout is torch.sparse_csc:
            return {"row": matrix.row_indices(), "colptr": matrix.ccol_indices()}
        return {"indices": matrix.indices()}

    def _recalled(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        values = self.values
        need(self.matrix.layout is not torch.sparse_csc and values.dim() == 1 and not values.requires_grad)
        edges, contents = self._edges(), (fingerprint(values), values.dtype)
        entry = edges.derived.get(key)
        if entry is None or entry[0] != contents:
            entry = edges.derived[key] = contents, make()
        return entry[1]

    def _like(self, arrays: Arrays | None, values: Any) -> Tensor:
        index_arrays, shape, device = arrays or self._arrays(), self.matrix.shape, values.device
        unchecked: Any = {"check_invariants": False}
        if self.is_coo:
            matrix = torch.sparse_coo_tensor(
                index_arrays["indices"], values, shape, device=device, is_coalesced=True, **unchecked
            )
        else:
            rowptr, col = index_arrays["rowptr"], index_arrays["col"]
            matrix = torch.sparse_csr_tensor(rowptr, col, values, shape, device=device, **unchecked)
        if arrays is None:
            self._edges().matrices[matrix] = matrix._version
        return matrix

    def _graph(self) -> Graph | None:
        num_dst, num_src = self.matrix.shape[:_MATRIX]
        arrays = {name: readable(array) for name, array in self._arrays().items()}
        try:
            if "rowptr" in arrays:
                return Graph.from_csr(arrays["rowptr"], arrays["col"], num_src)
            if "colptr" in arrays:
                return Graph.from_csr(arrays["colptr"], arrays["row"], num_dst).transpose()
            graph = Graph.from_edge_index(arrays["indices"].flip(0), size=(num_src, num_dst))
        except ArgumentError:
            return None
        # A matrix may be marked as coalesced although it is not, and torch believes the mark.
        return graph if graph.perm is None else None


def fingerprint(array: Tensor) -> int:
    """A hash of all contents of a tensor on the CPU."""
    array = array.detach().contiguous()
    return native.extension.fingerprint(read_address(array), array.nbytes, native.threads())
