"""Sparse matrices of torch's own: CSR, CSC and COO."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.contents import fingerprint
from onehop.integrations.pyg.edges.adjacency import Adjacency, Arrays, Kept
from onehop.integrations.pyg.leave import EXACT, need
from onehop.integrations.torch.matrix_edges import Recognised, arrays_of, graph_of, recognised
from onehop.ops.contexts import WRAPPED, wraps

LAYOUTS = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_coo))
"""Layouts that PyG accepts for a sparse matrix."""

_MATRIX = 2
_IT = "edge_index is a sparse matrix"
_DENSE = f"{_IT} with further dimensions"
_DISTINCT = "torch gives gradients to values of distinct, ascending columns in every row"


class TorchMatrix(Adjacency):
    """A sparse matrix of torch's own.

    The matrix is recognised by its index arrays (:mod:`onehop.integrations.torch.matrix_edges`), and the
    values of derived results by their contents.
    """

    __slots__ = ("_known",)

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self._known: Recognised | None = None

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
        try:
            graph = graph_of(self.matrix, self._recognised())
        except ArgumentError:
            return None
        # A matrix may be marked as coalesced although it is not, and torch believes the mark.
        return None if self.is_coo and graph.perm is not None else graph

    def check_gradients(self) -> None:
        """Raises Leave where values need gradients that torch does not compute, or computes differently."""
        if not torch.is_grad_enabled() or not self.values.requires_grad:
            return
        graph, (edges, is_transposed) = self.graph(), self._recognised()
        is_csc = self.matrix.layout is torch.sparse_csc
        need(not is_csc, "torch gives no gradients to the values of a CSC matrix")
        distinct = edges.distinct.get(is_transposed)
        if distinct is None:
            ascends = torch.ones(graph.num_edges + 1, dtype=torch.bool, device="cpu")
            torch.gt(graph.col[1:], graph.col[:-1], out=ascends[1 : max(graph.num_edges, 1)])
            ascends[graph.rowptr] = True
            distinct = edges.distinct[is_transposed] = bool(ascends.all())
        need(distinct, _DISTINCT)

    def _recognised(self) -> Recognised:
        """The edges; looked up once."""
        if self._known is None:
            self._known = recognised(self.matrix)
        return self._known

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
        return arrays_of(self.matrix)

    def _recalled(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        values = self.values
        need(self.matrix.layout is not torch.sparse_csc and values.dim() == 1 and not values.requires_grad)
        edges, is_transposed = self._recognised()
        contents = fingerprint(values.detach().contiguous()), values.dtype
        entry = edges.derived.get((is_transposed, key))
        if entry is None or entry[0] != contents:
            entry = edges.derived[is_transposed, key] = contents, make()
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
            self._recognised().edges.matrices[matrix] = matrix._version
        return matrix
