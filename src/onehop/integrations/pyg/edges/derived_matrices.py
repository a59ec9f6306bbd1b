"""Memory of the matrices that layers make of a sparse one on every call: GCN's normalisation, and loops.

PyG adds loops, sorts, and makes new arrays each time. Here the arrays are kept as long as the values have
the same contents, and every caller gets a matrix of copies of its own. What is made of values that need a
gradient is made by PyG every time.
"""

import weakref
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.lending import lend, read_address
from onehop.integrations.pyg.edges.graphs import degree_scale_of, note_degree_scale
from onehop.integrations.pyg.edges.matrices import (
    Structure,
    fingerprint,
    index_arrays,
    matrix_reason,
    of_arrays,
    structure_of,
)


class _Kept(NamedTuple):
    """A matrix that was made from another one, and that only this memory has.

    Attributes:
        contents: Fingerprint of the values that it was made from.
        arrays: Its index arrays; None where they are those of the matrix that it was made from.
        values: [E], its values.
        structure: Its edges. The cache of graphs holds them.
    """

    contents: int
    arrays: tuple[Tensor, ...] | None
    values: Tensor
    structure: "weakref.ref[Structure]"


def derived(matrix: Tensor, key: Hashable, make: Callable[[], Tensor]) -> Tensor | None:
    """Returns the matrix that PyG makes of another one, from memory.

    Args:
        matrix: A sparse matrix; the context is fit for a fast path.
        key: What is made.
        make: Makes it, of the same layout.

    Returns:
        A matrix of the caller's own; None where PyG has to make it.
    """
    if matrix_reason(matrix) is not None or matrix.layout is torch.sparse_csc or matrix.requires_grad:
        return None
    if matrix.dense_dim():
        return None
    structure, values = structure_of(matrix), matrix.values()
    found: _Kept | None = structure.derived.get(key)
    contents = fingerprint(values)
    # Tensors made in inference mode could not be used outside it, nor recognised.
    with torch.inference_mode(False), torch.no_grad():
        if found is None or found.contents != contents or found.values.dtype is not values.dtype:
            found = structure.derived[key] = _made(matrix, make, contents)
        arrays = index_arrays(matrix) if found.arrays is None else tuple(map(lend, found.arrays))
        made = of_arrays(matrix, arrays, lend(found.values))
    edges = found.structure()
    if edges is not None:
        edges.note(made)
    return made


def scale_of(values: Tensor, graph: Graph, dtype: torch.dtype) -> Tensor | None:
    """The numbers whose products over the ends of these edges the values are; None if they are not known.

    None too where features of ``dtype`` are more exact than the values.
    """
    if torch.promote_types(values.dtype, dtype) != values.dtype:
        return None
    return degree_scale_of(values, graph)


def _made(matrix: Tensor, make: Callable[[], Tensor], contents: int) -> _Kept:
    made = make()
    values = made.values().clone()
    given, arrays = index_arrays(matrix), index_arrays(made)
    kept: tuple[Tensor, ...] | None = None
    # The cache must not hold the matrix's own arrays, or they would never be freed.
    if any(read_address(one) != read_address(other) for one, other in zip(given, arrays, strict=True)):
        kept = tuple(array.clone() for array in arrays)
    copy = of_arrays(matrix, kept or given, values)
    edges = structure_of(copy)
    graph = edges.graph(copy)
    if graph is not None:
        note_degree_scale(values, graph)
    return _Kept(contents, kept, values, weakref.ref(edges))
