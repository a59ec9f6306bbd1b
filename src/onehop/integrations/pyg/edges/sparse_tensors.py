"""``SparseTensor`` of torch_sparse as edges: rows are destinations, columns are sources.

PyG passes one set of index arrays on: ``set_value`` and ``gcn_norm`` make new objects of the same tensors. So
the graph is found by its column array, as that of an ``edge_index`` is, and each array of rows is compared
with it once. Contents are checked as those of an ``edge_index`` (:mod:`onehop.graph.identity`). Where
torch_sparse is not installed, PyG has a class of that name without instances.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE, remembered
from onehop.graph.lending import readable
from onehop.ops.contexts import WRAPPED, wraps


def is_sparse_tensor(edge_index: Any) -> bool:
    """Return whether edges are given as a SparseTensor."""
    return type(edge_index) is SparseTensor


def sparse_tensor_reason(adj_t: Any) -> str | None:
    """Return why the edges of a SparseTensor cannot be taken; None if they can. No contents are read."""
    storage = adj_t.storage
    col, value = storage._col, storage._value
    if wraps(col, value):
        return WRAPPED
    if not col.is_cpu:
        return "edge_index is a SparseTensor on another device than the CPU"
    if col.is_inference():
        return "edge_index is a SparseTensor that was made in inference mode, and so cannot be recognised"
    return None


def graph_of_tensor(adj_t: Any) -> Graph | None:
    """The edges of a SparseTensor for which :func:`sparse_tensor_reason` returns None.

    Returns:
        The graph, in the order of the values: found, or made. None if a number is out of range, or the arrays
        contradict each other.
    """
    storage = adj_t.storage
    rest = ("edges of a SparseTensor", *storage._sparse_sizes)
    found: Graph | None = remembered(storage._col, key=rest)
    if found is not None and _has_rows(found, storage):
        return found
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        made = _made(storage)
    if made is None or not _has_rows(made, storage):
        return None
    CACHE.store(storage._col, rest, made)
    return made


def are_ones(values: Tensor) -> bool:
    """Return whether every one of these values, which need no gradient, is 1; remembered."""
    return remembered(values, key="ones", make=lambda: bool((values == 1).all()))


def _has_rows(graph: Graph, storage: Any) -> bool:
    """Return whether a SparseTensor's rows are those of a graph; each array is compared once.

    It may have them as pointers, as numbers, or both; PyG reads either.
    """
    pointers, numbers = storage._rowptr, storage._row
    return (
        pointers is None
        or remembered(
            pointers, key=("pointers", graph.number), make=lambda: torch.equal(pointers, graph.rowptr)
        )
    ) and (
        numbers is None
        or remembered(numbers, key=("numbers", graph.number), make=lambda: _are_numbers(numbers, graph))
    )


def _are_numbers(row: Tensor, graph: Graph) -> bool:
    """Return whether these are the numbers of the rows of a graph's edges."""
    pointers = _pointers(row, graph.num_dst)
    return pointers is not None and torch.equal(pointers, graph.rowptr)


def _pointers(row: Tensor, num_rows: int) -> Tensor | None:
    """[num_rows + 1]: where each row begins; None if the numbers do not ascend, or leave the range."""
    if row.numel() and (int(row[0]) < 0 or int(row[-1]) >= num_rows or bool((row[1:] < row[:-1]).any())):
        return None
    return torch._convert_indices_from_coo_to_csr(row, num_rows)


def _made(storage: Any) -> Graph | None:
    rows, columns = storage._sparse_sizes
    pointers = storage._rowptr
    if pointers is None:
        pointers = _pointers(storage._row, rows)
    if pointers is None or pointers.numel() != rows + 1:
        return None
    try:
        return Graph.from_csr(readable(pointers), readable(storage._col), columns)
    except ArgumentError:
        return None
