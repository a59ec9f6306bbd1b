"""Memory of what PyG's layers make of a SparseTensor on every call: GCN's normalisation, and loops.

PyG adds loops, sorts, and makes new arrays each time. Here the arrays are kept as long as the one that they
were made from is unchanged, and every caller gets a SparseTensor of copies of its own
(:mod:`onehop.graph.lending`). What is made of values that need a gradient is made by PyG every time.
"""

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.identity import CACHE
from onehop.graph.lending import lend
from onehop.integrations.pyg.sparse_tensors import (
    graph_of_tensor,
    is_sparse_tensor,
    note_scale,
    sparse_tensor_reason,
)
from onehop.integrations.rows import Row, stand_in
from onehop.ops.contexts import compiling, context_reason

# Whether one is being made: what PyG makes on the way to it is not kept as well.
_making: ContextVar[bool] = ContextVar("onehop_making_a_sparse_tensor", default=False)

_INDEX = ("row", "rowptr", "col", "rowcount", "colptr", "colcount", "csr2csc", "csc2csr")


@dataclass(frozen=True, slots=True)
class _Derived:
    """A SparseTensor that was made from another one, which nobody else has.

    Attributes:
        index: Its index arrays, by name; None where they are those of the one that it was made from.
        values: Its values, or None.
        sizes: Rows and columns.
    """

    index: dict[str, Tensor] | None
    values: Tensor | None
    sizes: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        own = 0 if self.values is None else self.values.nbytes
        return own + sum(array.nbytes for array in (self.index or {}).values())


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
    owner = adj_t.storage._col if values is None else values
    rest = ("made of a SparseTensor", graph.number, key)
    # Tensors made in inference mode could not be used outside it, where they will be found again.
    with torch.inference_mode(False), torch.no_grad():
        found: _Derived | None = CACHE.find(owner, rest)
        if found is None:
            before = _making.set(True)
            try:
                made = make()
            finally:
                _making.reset(before)
            found = _kept(made, adj_t)
            CACHE.store(owner, rest, found)
        return _lent(found, adj_t)


def rows() -> list[Row]:
    """The table's rows: functions of torch_sparse as PyG's layers call them, if it is installed."""
    if not torch_geometric.typing.WITH_TORCH_SPARSE:
        return []
    module = torch_geometric.typing.torch_sparse
    made = {"set_diag": _remembering_set, "fill_diag": _remembering_fill}
    return [
        Row(module, name, maker(getattr(module, name)), getattr(module, name)) for name, maker in made.items()
    ]


def _remembering_set(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """``torch_sparse.set_diag`` with a memory of loops that weigh 1."""
    ours, in_program = _remembered, compiling

    def set_diag(src, values=None, k=0):  # type: ignore[no-untyped-def]
        if in_program() or values is not None or type(k) is not int:
            return theirs(src, values, k)
        return ours(src, ("set_diag", k), lambda: theirs(src, None, k))

    return stand_in(theirs, set_diag)


def _remembering_fill(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """``torch_sparse.fill_diag`` with a memory."""
    ours, in_program = _remembered, compiling

    def fill_diag(src, fill_value, k=0):  # type: ignore[no-untyped-def]
        if in_program() or type(fill_value) not in (int, float) or type(k) is not int:
            return theirs(src, fill_value, k)
        return ours(src, ("fill_diag", fill_value, k), lambda: theirs(src, fill_value, k))

    return stand_in(theirs, fill_diag)


def _remembered(src: Any, key: Hashable, make: Callable[[], Any]) -> Any:
    if not is_sparse_tensor(src) or _making.get() or context_reason() is not None:
        return make()
    made = derived_tensor(src, key, make)
    return make() if made is None else made


def _kept(made: Any, adj_t: Any) -> _Derived:
    """Copies of what was made; the cache must not hold the caller's own arrays, or they would never go."""
    storage = made.storage
    index = None
    if storage._col is not adj_t.storage._col:
        arrays = {name: getattr(storage, f"_{name}") for name in _INDEX}
        index = {name: array.clone() for name, array in arrays.items() if array is not None}
    values = None if storage._value is None else storage._value.clone()
    kept = _Derived(index, values, storage._sparse_sizes)
    if values is not None:
        whole = _of(kept, adj_t, index, values)
        graph = graph_of_tensor(whole)
        scale = None if graph is None else _scale(graph, values)
        if graph is not None and scale is not None:
            note_scale(values, graph, scale)
    return kept


def _scale(graph: Graph, values: Tensor) -> Tensor | None:
    """[N]: ``deg ** -1/2``, if the values are its products, as GCN's are where every edge weighed 1."""
    if graph.num_src != graph.num_dst or values.dim() != 1 or not values.is_floating_point():
        return None
    scale = graph.in_degrees.to(values.dtype).pow_(-0.5)
    scale.masked_fill_(scale == float("inf"), 0)
    source, target = graph.edge_index()
    return scale if torch.equal(scale[source] * scale[target], values) else None


def _lent(found: _Derived, adj_t: Any) -> Any:
    """A SparseTensor of copies."""
    index = None if found.index is None else {name: lend(array) for name, array in found.index.items()}
    return _of(found, adj_t, index, None if found.values is None else lend(found.values))


def _of(found: _Derived, adj_t: Any, index: dict[str, Tensor] | None, values: Tensor | None) -> Any:
    """A SparseTensor of these arrays, or with those of the one that it was made from; nothing is checked."""
    given = adj_t.storage
    arrays = {name: getattr(given, f"_{name}") for name in _INDEX} if index is None else index
    storage = type(given)(value=values, sparse_sizes=found.sizes, is_sorted=True, trust_data=True, **arrays)
    return adj_t.from_storage(storage)
