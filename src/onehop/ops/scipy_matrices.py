"""SciPy's sparse matrices as graphs, and NumPy's arrays as tensors, for operators that take them.

A matrix has its graph while its index arrays have the same contents, which are compared at each call by
fingerprints. Its values are read at each call.
"""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.graph.contents import fingerprint

# The index arrays of the formats that are read without a conversion.
_ARRAYS = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}
# By the id of a matrix, which has no hash: the matrix, the contents of its index arrays, and its graph.
_known: dict[int, tuple["weakref.ref[Any]", tuple[int, ...], Graph]] = {}

Array = np.ndarray[Any, Any]
SciPyMatrix = Any
"""A sparse matrix or array of SciPy, [num_dst, num_src]."""


def is_scipy_matrix(graph: object) -> bool:
    """Return whether an object is a sparse matrix or array of SciPy, which is not imported for it."""
    return type(graph).__module__.startswith("scipy.sparse")


def aggregated(
    operator: Callable[..., Tensor], matrix: SciPyMatrix, x: Any, weight: Any, **options: Any
) -> Any:
    """Runs an operator over the edges of a matrix, with its values as weights.

    Args:
        operator: Takes a graph, x and a weight, and the options.
        matrix: The matrix.
        x: An array or a tensor, [num_src, ...]; of an array, [num_src] is one column.
        weight: What counts instead of the values, [E]; None means the values.
        **options: Further options.

    Returns:
        An array if x is one, else a tensor.

    Raises:
        ArgumentError: The arrays of the matrix contradict each other, or an argument has no numbers.
    """
    graph, values = _edges_of(matrix)
    values = values if weight is None else weight
    if isinstance(x, Tensor):
        return operator(graph, x, as_tensor("weight", values).to(x.dtype), **options)
    # As NumPy promotes them, integers included.
    numbers = [each for each in (x, values) if isinstance(each, np.ndarray)]
    dtype = np.result_type(*numbers) if numbers else None
    rows, weight = (as_tensor(name, each, dtype) for name, each in (("x", x), ("weight", values)))
    if rows.dim() == 1:
        return operator(graph, rows.unsqueeze(1), weight, **options).squeeze(1).numpy()
    return operator(graph, rows, weight, **options).numpy()


def of_ends(operator: Callable[..., Tensor], matrix: SciPyMatrix, dst: Any, src: Any, **options: Any) -> Any:
    """Runs an operator of the rows at both ends of a matrix's entries.

    Args:
        operator: Takes a graph, rows of destinations and of sources, and the options.
        matrix: The matrix.
        dst: An array or a tensor, [num_dst, ...].
        src: The same of sources.
        **options: Further options.

    Returns:
        An array, in the order of the matrix's values, if ``dst`` is one; else a tensor.

    Raises:
        ArgumentError: The arrays of the matrix contradict each other, or an argument has no numbers.
    """
    graph, _ = _edges_of(matrix)
    out = operator(graph, as_tensor("dst", dst), as_tensor("src", src), **options)
    return out if isinstance(dst, Tensor) else out.numpy()


def _edges_of(matrix: SciPyMatrix) -> tuple[Graph, Array]:
    """The graph of a matrix, and its values in the order of the edges."""
    if matrix.format not in _ARRAYS:
        matrix = matrix.tocsr()
    arrays = [as_tensor(name, getattr(matrix, name)) for name in _ARRAYS[matrix.format]]
    contents = (*matrix.shape, *(fingerprint(each.contiguous()) for each in arrays))
    known = _known.get(id(matrix))
    if known is None or known[0]() is not matrix or known[1] != contents:
        number = id(matrix)
        forget = weakref.ref(matrix, lambda _: _known.pop(number, None))
        known = _known[number] = forget, contents, Graph.from_scipy(matrix)
    graph = known[2]
    # SciPy lets the arrays be longer than the matrix has entries.
    return graph, matrix.data[: graph.num_edges]


def as_tensor(name: str, array: object, dtype: Any = None) -> Tensor:
    """A tensor with the memory of an array, or of a copy if torch cannot read that; a tensor stays itself.

    Raises:
        ArgumentError: It is neither, or torch has no such numbers.
    """
    if isinstance(array, Tensor):
        return array
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name}: expected a NumPy array or a tensor, got {type(array).__name__}.")
    read = array.astype(dtype or array.dtype.newbyteorder("="), copy=False)
    if not read.flags.writeable or any(stride < 0 for stride in read.strides):
        read = read.copy()
    try:
        return torch.from_numpy(read)
    except TypeError as error:
        raise ArgumentError(f"{name}: torch has no numbers of {array.dtype}.") from error
