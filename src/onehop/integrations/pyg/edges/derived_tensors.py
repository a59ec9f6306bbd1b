"""Memory of what PyG's layers make of a SparseTensor on every call: GCN's normalisation, and loops.

PyG adds loops, sorts, and makes new arrays each time. Here the arrays are kept as long as the one that they
were made from is unchanged, and every caller gets a SparseTensor of copies of its own
(:mod:`onehop.graph.lending`). What is made of values that need a gradient is made by PyG every time.
"""

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch_geometric.typing
from torch import Tensor

from onehop.graph.identity import remembered
from onehop.graph.lending import lend
from onehop.integrations.pyg.edges.graphs import note_degree_scale
from onehop.integrations.pyg.edges.sparse_tensors import (
    graph_of_tensor,
    is_sparse_tensor,
    sparse_tensor_reason,
)
from onehop.integrations.rows import Row, replacing
from onehop.ops.contexts import context_reason

# Whether one is being made: what PyG makes on the way to it is not kept as well.
_making: ContextVar[bool] = ContextVar("onehop_making_a_sparse_tensor", default=False)

_INDEX = ("row", "rowptr", "col", "rowcount", "colptr", "colcount", "csr2csc", "csc2csr")


class _Kept(NamedTuple):
    """A SparseTensor that was made from another one, and that only the cache has.

    Attributes:
        arrays: Its index arrays, by name; None where they are those of the one that it was made from.
        values: Its values, or None.
        sizes: Rows and columns.
    """

    arrays: dict[str, Tensor] | None
    values: Tensor | None
    sizes: tuple[int, int]


def derived_tensor(adj_t: Any, key: Hashable, make: Callable[[], Any]) -> Any | None:
    """Returns the SparseTensor that PyG makes of another one, from memory.

    Args:
        adj_t: A SparseTensor; the context is fit for a fast path.
        key: What is made.
        make: Makes it.

    Returns:
        A SparseTensor of the caller's own; None where PyG has to make it.
    """
    values = adj_t.storage._value
    if sparse_tensor_reason(adj_t) is not None:
        return None
    if values is not None and (values.requires_grad or values.is_inference()):
        return None
    graph = graph_of_tensor(adj_t)
    if graph is None:
        return None
    # Copies made in inference mode would not be recognised.
    with torch.inference_mode(False), torch.no_grad():
        kept = remembered(
            adj_t.storage._col if values is None else values,
            key=("made of a SparseTensor", graph.number, key),
            make=lambda: _kept(make, adj_t),
        )
        index = None if kept.arrays is None else {name: lend(array) for name, array in kept.arrays.items()}
        return _of(kept, adj_t, index, None if kept.values is None else lend(kept.values))


def rows() -> list[Row]:
    """The table's rows: functions of torch_sparse as PyG's layers call them, if it is installed."""
    if not torch_geometric.typing.WITH_TORCH_SPARSE:
        return []
    module = torch_geometric.typing.torch_sparse
    return [replacing(module, "set_diag", _set_diag), replacing(module, "fill_diag", _fill_diag)]


def _set_diag(theirs: Callable[..., Any], src: Any, values: Any = None, k: Any = 0) -> Any:
    """``torch_sparse.set_diag`` with loops that weigh 1, from memory; None if its code has to run."""
    if values is not None or type(k) is not int or not _may_keep(src):
        return None
    return derived_tensor(src, ("set_diag", k), lambda: theirs(src, None, k))


def _fill_diag(theirs: Callable[..., Any], src: Any, fill_value: Any, k: Any = 0) -> Any:
    """``torch_sparse.fill_diag``, from memory; None if its code has to run."""
    if type(fill_value) not in (int, float) or type(k) is not int or not _may_keep(src):
        return None
    return derived_tensor(src, ("fill_diag", fill_value, k), lambda: theirs(src, fill_value, k))


def _may_keep(src: Any) -> bool:
    return is_sparse_tensor(src) and not _making.get() and context_reason() is None


def _kept(make: Callable[[], Any], adj_t: Any) -> _Kept:
    """Copies of what is made: the cache must not hold the caller's own arrays, which would never be freed."""
    before = _making.set(True)
    try:
        made = make()
    finally:
        _making.reset(before)
    storage, index = made.storage, None
    if storage._col is not adj_t.storage._col:
        arrays = {name: getattr(storage, f"_{name}") for name in _INDEX}
        index = {name: array.clone() for name, array in arrays.items() if array is not None}
    values = None if storage._value is None else storage._value.clone()
    kept = _Kept(index, values, storage._sparse_sizes)
    if values is not None:
        graph = graph_of_tensor(_of(kept, adj_t, index, values))
        if graph is not None:
            note_degree_scale(values, graph)
    return kept


def _of(kept: _Kept, adj_t: Any, index: dict[str, Tensor] | None, values: Tensor | None) -> Any:
    """A SparseTensor of these arrays, or with those of the one that it was made from; nothing is checked."""
    given = adj_t.storage
    arrays = {name: getattr(given, f"_{name}") for name in _INDEX} if index is None else index
    storage = type(given)(value=values, sparse_sizes=kept.sizes, is_sorted=True, trust_data=True, **arrays)
    return adj_t.from_storage(storage)
