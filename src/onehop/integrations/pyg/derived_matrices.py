"""Memory of the matrices that layers make of a sparse one on every call: GCN's normalisation, and loops.

PyG adds loops, sorts, and makes new arrays each time. Here the arrays are kept as long as the values have
the same contents, and every caller gets a matrix of copies of its own. What is made of values that need a
gradient is made by PyG every time.
"""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from onehop.graph import Graph
from onehop.graph.lending import lend, original, read_address
from onehop.integrations.pyg.matrices import (
    Structure,
    fingerprint,
    index_arrays,
    matrix_reason,
    of_arrays,
    structure_of,
)


@dataclass(frozen=True, slots=True)
class DerivedMatrix:
    """A matrix that was made from another one, which nobody else has.

    Attributes:
        contents: Fingerprint of the values that it was made from.
        arrays: Its index arrays; None where they are those of the matrix that it was made from.
        values: [E], its values.
        scale: [N], numbers whose products over the ends of the edges the values are; None if they are none.
        structure: Its edges. The cache of graphs holds them.
    """

    contents: int
    arrays: tuple[Tensor, ...] | None
    values: Tensor
    scale: Tensor | None
    structure: "weakref.ref[Structure]"

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(
            each.nbytes for each in (*(self.arrays or ()), self.values, self.scale) if each is not None
        )


# For the values of kept matrices: the edges that they belong to, and the numbers whose products they are.
_scales: Any = WeakIdKeyDictionary()


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
    found: Any = structure.derived.get(key)
    contents = fingerprint(values)
    # Tensors made in inference mode could not be used outside it, nor recognised.
    with torch.inference_mode(False), torch.no_grad():
        if found is None or found.contents != contents or found.values.dtype is not values.dtype:
            found = _made(matrix, make, contents)
            structure.derived[key] = found
        made = _lent(found, matrix)
    edges = found.structure()
    if edges is not None:
        edges.note(made)
    return made


def scale_of(values: Tensor, structure: Structure, dtype: torch.dtype) -> Tensor | None:
    """The numbers whose products over the ends of these edges the values are; None if they are not known.

    None too where features of ``dtype`` are more exact than the values.
    """
    kept = original(values)
    found = None if kept is values else _scales.get(kept)
    if (
        found is None
        or found[0]() is not structure
        or torch.promote_types(values.dtype, dtype) != values.dtype
    ):
        return None
    scale: Tensor = found[1]
    return scale


def _made(matrix: Tensor, make: Callable[[], Tensor], contents: int) -> DerivedMatrix:
    made = make()
    values = made.values().clone()
    given, arrays = index_arrays(matrix), index_arrays(made)
    kept: tuple[Tensor, ...] | None = None
    # The cache must not hold the matrix's own arrays, or they would never be freed.
    if any(read_address(one) != read_address(other) for one, other in zip(given, arrays, strict=True)):
        kept = tuple(array.clone() for array in arrays)
    copy = of_arrays(matrix, kept or given, values)
    edges = structure_of(copy)
    scale = _scale(edges.graph(copy), values)
    if scale is not None:
        _scales[values] = weakref.ref(edges), scale
    return DerivedMatrix(contents, kept, values, scale, weakref.ref(edges))


def _scale(graph: Graph | None, values: Tensor) -> Tensor | None:
    """[N]: ``deg ** -1/2``, if the values are its products, as GCN's are where every edge weighed 1."""
    if graph is None or graph.num_src != graph.num_dst or not values.is_floating_point():
        return None
    scale = graph.in_degrees.to(values.dtype).pow_(-0.5)
    scale.masked_fill_(scale == float("inf"), 0)
    source, target = graph.edge_index()
    return scale if torch.equal(scale[source] * scale[target], values) else None


def _lent(found: DerivedMatrix, matrix: Tensor) -> Tensor:
    if found.arrays is None:
        return of_arrays(matrix, index_arrays(matrix), lend(found.values))
    return of_arrays(matrix, tuple(lend(array) for array in found.arrays), lend(found.values))
