"""Sparse matrices [num_dst, num_src]: torch's CSR, CSC and COO, and ``SparseTensor`` of torch_sparse.

Rows are destinations, columns are sources. PyG makes new matrices from the same index arrays and other
values, so edges are recognised by the arrays. PyG also adds self loops to a matrix, or normalises it, in
every call; here the result is cached, and every caller gets a matrix with its own copies
(:mod:`onehop.graph.lending`).
"""

import math
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.lending import lend, read_address
from onehop.integrations import session
from onehop.integrations.pyg.edges import Factors
from onehop.integrations.pyg.edges.scales import degree_scale_of, note_degree_scale
from onehop.integrations.pyg.leave import EXACT, OUT_OF_RANGE, Leave, need
from onehop.ops.arg_extremum import MOST_EDGES

LINEAR = ("sum", "mean")
"""The reductions that are products with the matrix, up to a division."""

_ONE_EDGE = "the gradient of a max or min over a sparse matrix goes to one edge"

# Whether a matrix is being derived. Intermediate matrices that PyG makes are not cached.
_making: ContextVar[bool] = ContextVar("onehop_making_a_matrix", default=False)

Arrays = dict[str, Tensor]
"""The index arrays of a matrix by name; the first contains the column of each entry."""

Kept = tuple[Arrays | None, Tensor | None]
"""The index arrays and values of a derived matrix; arrays of None are those of the original matrix."""


class Adjacency:
    """A sparse matrix as edges, in the order of its values.

    Attributes:
        matrix: The matrix.
    """

    __slots__ = ("matrix",)

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    @property
    def values(self) -> Tensor | None:
        """The values, [E] or [E, D]; None if a SparseTensor has no values."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises Leave if the edges are not supported; no contents are read."""
        raise NotImplementedError

    def find(self) -> Graph | None:
        """Return the graph, cached or new.

        The result is None if a number is out of range, or if the arrays contradict each other or the order of
        a COO matrix.
        """
        raise NotImplementedError

    def graph(self) -> Graph:
        """Return the graph.

        Raises:
            Leave: :meth:`find` returns None.
        """
        graph = self.find()
        if graph is None:
            raise Leave(OUT_OF_RANGE)
        return graph

    @property
    def is_coo(self) -> bool:
        """Return whether the matrix is torch's own COO matrix."""
        return type(self.matrix) is Tensor and self.matrix.layout is torch.sparse_coo

    def check_gradients(self) -> None:
        """Raises Leave if values need gradients that torch does not compute, or computes differently."""

    def factors(self, x: Tensor, reduce: str, weighted: bool = True) -> Factors:
        """Return the factors of PyG's product with the matrix (``spmm``).

        Args:
            x: The features, on the CPU.
            reduce: "sum", "mean", "max" or "min".
            weighted: Whether to use the values of a SparseTensor; values of torch's own matrices are always
                used.

        Raises:
            Leave: PyG's own product has to run.
        """
        values, learned = self._operand(x, reduce, weighted)
        graph, scale, linear = self.graph(), None, reduce in LINEAR
        first = not linear and (learned or (x.requires_grad and torch.is_grad_enabled()))
        if first:
            _check_first(graph, x, values)
        # PyG first rounds values to the dtype of the features.
        if values is not None and not learned and linear and values.dtype is x.dtype:
            scale = degree_scale_of(values, graph)
        if values is None or scale is not None or (not learned and self._are_ones(values)):
            return Factors(graph, None, scale, first)
        # PyG increases the version of a COO matrix when it converts it to CSR, so autograd has to save a
        # copy.
        return Factors(graph, values.to(x.dtype, copy=self.is_coo), None, first)

    def derived(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Returns a matrix that PyG makes from this one, from the cache.

        Args:
            key: Identifies the result.
            make: Makes a matrix of the same type and shape; the caller has checked the context.

        Returns:
            A new matrix object with its own copies.

        Raises:
            Leave: PyG has to make it, for example because the values need a gradient.
        """
        self.check()
        need(not _making.get())
        # Tensors made in inference mode could not be used outside of it, nor recognised.
        with torch.inference_mode(False), torch.no_grad():
            arrays, values = self._recalled(key, partial(self._copied, make))
            return self._like(_lent(arrays), None if values is None else lend(values))

    def _copied(self, make: Callable[[], Any]) -> Kept:
        """Copies a new matrix's arrays and values; this matrix's own arrays are not cached with it."""
        before = _making.set(True)
        try:
            adjacency = type(self)(make())
        finally:
            _making.reset(before)
        all_arrays, values = adjacency._arrays(), adjacency.values
        same_arrays = _first_address(all_arrays) == _first_address(self._arrays())
        arrays = None if same_arrays else {name: array.clone() for name, array in all_arrays.items()}
        if values is not None:
            values = values.clone()
            # As the callers' copies are recognised.
            graph = type(self)(self._like(_lent(arrays), values)).find()
            if graph is not None:
                note_degree_scale(values, graph)
        return arrays, values

    def _operand(self, x: Tensor, reduce: str, weighted: bool) -> tuple[Tensor | None, bool]:
        """Return the values used in a product, [E], and whether they get a gradient; may raise Leave."""
        raise NotImplementedError

    def _are_ones(self, values: Tensor) -> bool:
        """Return whether all values are 1, as PyG fills them in."""
        if not values.numel():
            return True
        # Testing two entries first excludes most other weights. Complex numbers have no order.
        if values.is_complex() or not (values[0] == 1 and values[-1] == 1):
            return False
        least, most = torch.aminmax(values.detach())
        return bool(least == 1 and most == 1)

    def _arrays(self) -> Arrays:
        """Return the index arrays."""
        raise NotImplementedError

    def _recalled(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Returns the cached result for the current edges and values, or makes it; may raise Leave."""
        raise NotImplementedError

    def _like(self, arrays: Arrays | None, values: Tensor | None) -> Any:
        """Return a matrix of the same type and shape with these arrays (None: its own), without checks."""
        raise NotImplementedError


def _lent(arrays: Arrays | None) -> Arrays | None:
    return None if arrays is None else {name: lend(array) for name, array in arrays.items()}


def _first_address(arrays: Arrays) -> int:
    return read_address(next(iter(arrays.values())))


def _check_first(graph: Graph, x: Tensor, values: Tensor | None) -> None:
    """Raises Leave if the first of tied edges cannot be found as in PyG."""
    need(x.dtype in EXACT, f"{_ONE_EDGE}, in float32 and float64 alone")
    on_kernels = graph.num_edges <= MOST_EDGES and session.now.settings.backend in ("", "cpu")
    need(on_kernels, f"{_ONE_EDGE}, on the CPU's kernels alone")
    finite = _is_finite(x) and (values is None or _is_finite(values))
    need(finite, f"{_ONE_EDGE}, and a feature is not finite")


def _is_finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.detach().abs().sum()))
