"""``SparseTensor`` of torch_sparse in place of an ``edge_index``: rows are destinations, columns sources.

PyG hands on one set of index arrays: ``set_value`` and ``gcn_norm`` make new objects of the same tensors. So
the graph is found by its column array, as that of an ``edge_index`` is, and each array of rows is looked at
once. Contents are compared as those of an ``edge_index`` (:mod:`onehop.graph.identity`). PyG knows the class
where torch_sparse is installed, and has a class without instances where it is not.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.identity import CACHE, Mark
from onehop.graph.lending import original
from onehop.ops.contexts import WRAPPED, wraps


@dataclass(frozen=True, slots=True)
class _Scale:
    """Numbers of nodes whose products over the ends of the edges some values are.

    Attributes:
        of_nodes: [N].
    """

    of_nodes: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.of_nodes.nbytes


@dataclass(frozen=True, slots=True)
class _Ones:
    """A note on values: whether every one of them is 1."""

    all: bool
    nbytes: int = 0


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
    """The edges of a SparseTensor for which :func:`sparse_tensor_reason` has nothing to say.

    Returns:
        The graph, in the order of the values: found, or made. None if a number is out of range, or the arrays
        contradict each other.
    """
    storage = adj_t.storage
    rows, columns = storage._sparse_sizes
    rest = ("edges of a SparseTensor", rows, columns)
    found: Graph | None = CACHE.find(storage._col, rest)
    if found is not None and _has_rows(found, storage):
        return found
    made = _made(storage)
    if made is None or not _has_rows(made, storage):
        return None
    CACHE.store(storage._col, rest, made)
    return made


def scale_of_values(values: Tensor, graph: Graph, dtype: torch.dtype) -> Tensor | None:
    """The numbers whose products over the ends of the edges the values are; None if they are not known.

    None too where features are of another dtype, to which PyG rounds the values first.
    """
    if values.dtype is not dtype:
        return None
    found: _Scale | None = CACHE.find(values, ("scale", graph.number))
    return None if found is None else found.of_nodes


def note_scale(values: Tensor, graph: Graph, scale: Tensor) -> None:
    """Notes that ``values[e] == scale[source] * scale[destination]`` for these edges."""
    CACHE.store(values, ("scale", graph.number), _Scale(scale))


def are_ones(values: Tensor) -> bool:
    """Return whether every one of these values, which need no gradient, is 1; found out once."""
    found: _Ones | None = CACHE.find(values, "ones")
    if found is None:
        found = _Ones(bool((values == 1).all()))
        CACHE.store(values, "ones", found)
    return found.all


def _has_rows(graph: Graph, storage: Any) -> bool:
    """Return whether a SparseTensor's rows are those of a graph; each array is compared once.

    It may have them as pointers, as numbers, or both, of which PyG reads now the one and now the other.
    """
    for kind, array in (("pointers", storage._rowptr), ("numbers", storage._row)):
        if array is None or CACHE.find(array, (kind, graph.number)) is not None:
            continue
        pointers = array if kind == "pointers" else _pointers(array, graph.num_dst)
        if pointers is None or not torch.equal(pointers, graph.rowptr):
            return False
        CACHE.store(array, (kind, graph.number), Mark())
    return True


def _pointers(row: Tensor, num_rows: int) -> Tensor | None:
    """[num_rows + 1]: where each row begins; None if the numbers do not ascend, or leave the range."""
    if row.numel() and (int(row[0]) < 0 or int(row[-1]) >= num_rows or bool((row[1:] < row[:-1]).any())):
        return None
    return torch._convert_indices_from_coo_to_csr(row, num_rows)


def _made(storage: Any) -> Graph | None:
    rows, columns = storage._sparse_sizes
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        pointers = storage._rowptr
        if pointers is None:
            pointers = _pointers(storage._row, rows)
        if pointers is None or pointers.numel() != rows + 1:
            return None
        # Native code takes an address, which counts as a write: lent arrays would be copies no more.
        pointers, col = (
            each if original(each) is each else each.clone() for each in (pointers, storage._col)
        )
        try:
            return Graph.from_csr(pointers, col, columns)
        except ArgumentError:
            return None
