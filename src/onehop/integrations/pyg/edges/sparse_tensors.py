"""``SparseTensor`` of torch_sparse as a sparse matrix.

If torch_sparse is not installed, PyG defines a class of the same name that has no instances.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.contents import Noted
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import readable
from onehop.integrations.pyg.edges.adjacency import LINEAR, Adjacency, Arrays, Kept
from onehop.integrations.pyg.leave import need
from onehop.ops.contexts import WRAPPED, wraps

_MATRIX, _BATCHED = 2, 3
_IT = "edge_index is a SparseTensor"


class TorchSparseTensor(Adjacency):
    """A SparseTensor of torch_sparse.

    PyG reuses the arrays in matrices that it derives, so the arrays are recognised in the same way as an
    ``edge_index`` (:mod:`onehop.graph.identity`). The graph is cached under the columns; each array of rows
    is compared with it once.
    """

    __slots__ = ()

    @property
    def values(self) -> Tensor | None:
        """The values, [E] or [E, D]; None if there are none."""
        values: Tensor | None = self.matrix.storage._value
        return values

    def check(self) -> None:
        """Raises Leave if the edges are not supported; no contents are read."""
        col = self.matrix.storage._col
        need(not wraps(col, self.values), WRAPPED)
        need(col.is_cpu, f"{_IT} on another device than the CPU")
        need(not col.is_inference(), f"{_IT} that was made in inference mode, and so cannot be recognised")

    def find(self) -> Graph | None:
        """Return the graph, cached or new."""
        storage = self.matrix.storage
        key = ("edges of a SparseTensor", *storage._sparse_sizes)
        graph: Graph | None = remembered(storage._col, key=key)
        if graph is not None and _has_rows(graph, storage):
            return graph
        noted = Noted(storage._col)
        # Tensors made in inference mode could not be used outside of it, where the cache would return them.
        with torch.inference_mode(False), torch.no_grad():
            graph = _graph_of(storage)
        if graph is None or not _has_rows(graph, storage):
            return None
        CACHE.store(noted, key, graph)
        return graph

    def _operand(self, x: Tensor, reduce: str, weighted: bool) -> tuple[Tensor | None, bool]:
        # For features of two dimensions and values that need no gradient, PyG runs torch's product, in the
        # dtype of the features. Otherwise it runs torch_sparse's product: each value gets a gradient, also
        # repeated entries, and an extremum is replaced only by a greater (or smaller) number, so NaN and
        # infinities get lost. For a matrix without entries, PyG returns zeros that need no gradient.
        values = self.values if weighted else None
        need(self.matrix.nnz() > 0)
        if values is not None:
            need(values.dim() == 1, f"{_IT} whose values have further dimensions")
        need(x.dim() == _MATRIX or (x.dim() == _BATCHED and reduce in LINEAR))
        return values, values is not None and values.requires_grad

    def _are_ones(self, values: Tensor) -> bool:
        return remembered(values, key="ones", make=lambda: super(TorchSparseTensor, self)._are_ones(values))

    def _arrays(self) -> Arrays:
        storage = self.matrix.storage
        names = ("col", "row", "rowptr", "rowcount", "colptr", "colcount", "csr2csc", "csc2csr")
        arrays = {name: getattr(storage, f"_{name}") for name in names}
        return {name: array for name, array in arrays.items() if array is not None}

    def _recalled(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        values, number = self.values, self.graph().number
        need(values is None or not (values.requires_grad or values.is_inference()))
        owner = self.matrix.storage._col if values is None else values
        return remembered(owner, key=("made of a SparseTensor", number, key), make=make)

    def _like(self, arrays: Arrays | None, values: Tensor | None) -> Any:
        storage = self.matrix.storage
        options: Any = {"sparse_sizes": storage._sparse_sizes, "is_sorted": True, "trust_data": True}
        return self.matrix.from_storage(type(storage)(value=values, **options, **(arrays or self._arrays())))


def is_sparse_tensor(edge_index: Any) -> bool:
    """Return whether edges are given as a SparseTensor."""
    return type(edge_index) is SparseTensor


def _has_rows(graph: Graph, storage: Any) -> bool:
    """Return whether a SparseTensor has the rows of a graph; each array is compared once.

    It may store rows as pointers, as row numbers, or both; PyG reads either.
    """
    pointers, numbers = storage._rowptr, storage._row

    def are_numbers() -> bool:
        computed = _pointers(numbers, graph.num_dst)
        return computed is not None and torch.equal(computed, graph.rowptr)

    def are_pointers() -> bool:
        return torch.equal(pointers, graph.rowptr)

    return (pointers is None or remembered(pointers, key=("pointers", graph.number), make=are_pointers)) and (
        numbers is None or remembered(numbers, key=("numbers", graph.number), make=are_numbers)
    )


def _pointers(row: Tensor, num_rows: int) -> Tensor | None:
    """Return the bounds of rows, [num_rows + 1]; None if row numbers do not ascend or are out of range."""
    if row.numel() and (int(row[0]) < 0 or int(row[-1]) >= num_rows or bool((row[1:] < row[:-1]).any())):
        return None
    return torch._convert_indices_from_coo_to_csr(row, num_rows)


def _graph_of(storage: Any) -> Graph | None:
    rows, columns = storage._sparse_sizes
    pointers = _pointers(storage._row, rows) if storage._rowptr is None else storage._rowptr
    if pointers is None or pointers.numel() != rows + 1:
        return None
    try:
        return Graph.from_csr(readable(pointers), readable(storage._col), columns)
    except ArgumentError:
        return None
