"""Edges as a sparse matrix [num_dst, num_src]: torch's CSR, CSC and COO, and torch_sparse's SparseTensor.

A layer that has a fused path of PyG's own (``message_and_aggregate``) multiplies by the matrix there: every
message is the source's features times the matrix's value, and no other operand counts. The gradient of a max
or min then goes to the first of the edges that tie. Every other layer runs its message on each edge; PyG
passes the values as its weight if that is None.
"""

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.blocks import EdgeBlocks, cut_into_blocks
from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.edges import SOURCE, Edges, Factors
from onehop.integrations.pyg.edges.derived_matrices import scale_of
from onehop.integrations.pyg.edges.graphs import degree_scale_of
from onehop.integrations.pyg.edges.matrices import Structure, is_matrix, matrix_reason, structure_of
from onehop.integrations.pyg.edges.sizes import number_of_edges
from onehop.integrations.pyg.edges.sparse_tensors import (
    are_ones,
    graph_of_tensor,
    is_sparse_tensor,
    sparse_tensor_reason,
)
from onehop.integrations.pyg.leave import OUT_OF_RANGE, Leave, leave_if, need
from onehop.ops.arg_extremum import MOST_EDGES
from onehop.ops.contexts import autocasts

# Torch adds up and multiplies by matrices in no other dtypes.
_EXACT = (torch.float32, torch.float64)
_MATRIX, _BATCHED = 2, 3
# PyG puts the values in the first of these that a layer's functions take, if it was given as None.
_PLACES = ("edge_weight", "edge_attr", "edge_type")
_ONE_EDGE = "the gradient of a max or min over a sparse matrix goes to one edge"


class MatrixEdges(Edges):
    """Edges of a sparse matrix, in the order of its values.

    Args:
        layer: The layer.
        matrix: [num_dst, num_src].
        product: PyG's product that a layer with a fused path runs; None without one.

    Raises:
        Leave: PyG's own code has to run.

    Attributes:
        fused: Whether the layer multiplies by the matrix.
    """

    __slots__ = ("_graph", "fused")

    def __init__(self, layer: Any, matrix: Any, product: Any) -> None:
        leave_if(adjacency_reason(matrix))
        need(layer.flow == "source_to_target")
        self.fused: bool = layer.fuse
        if self.fused:
            overrides = type(layer).message_and_aggregate is not product
            need(not overrides, "its class overrides message_and_aggregate")
            own = "message_and_aggregate" in layer.__dict__
            need(not own, "this instance overrides message_and_aggregate")
        elif is_matrix(matrix) and matrix.layout is torch.sparse_csc:
            # Only PyG's plain propagate finds the ends of the edges of such a matrix.
            raise Leave("edge_index is a CSC matrix, and messages on its edges are PyG's to compute")
        self.given, self.count = matrix, number_of_edges(matrix)
        self.forwards, self.sending, self.is_cpu = True, SOURCE, True
        self.sizes = [matrix.size(1), matrix.size(0)]
        self._graph: Graph | None = None

    @property
    def index(self) -> Tensor:  # type: ignore[override]
        """[E]: the sources."""
        return self.graph().col

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    @property
    def values(self) -> Tensor | None:
        """The values that PyG passes for a missing weight: [E] or [E, D], or None if there are none."""
        return values_of(self.given)

    def graph(self) -> Graph:
        """The graph of the matrix, made once and found again."""
        if self._graph is None:
            matrix = self.given
            found = structure_of(matrix).graph(matrix) if is_matrix(matrix) else graph_of_tensor(matrix)
            if found is None:
                raise Leave(OUT_OF_RANGE)
            self._graph = found
        return self._graph

    def ends(self, row: int) -> Tensor:
        """[E]: the sources (row 0) or the destinations (row 1), as PyG numbers rows."""
        return self.graph().edge_index()[row]

    @property
    def ptr_is_none(self) -> bool:
        """Return whether PyG passes None for ``ptr`` to a message over these edges: it does for COO alone."""
        return type(self.given) is Tensor and self.given.layout is torch.sparse_coo

    def first(self, graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers, sources and destinations of so many edges."""
        places = torch.arange(count, device="cpu")
        targets = torch.searchsorted(graph.rowptr, places, right=True) - 1
        return places, graph.col[:count].long(), targets

    def blocks(self, graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
        """The graph in blocks, kept with the graph."""
        key = ("message blocks", block_edges, cut)
        with graph.lock:
            found: EdgeBlocks | None = graph.derived.get(key)
            if found is None:
                found = graph.derived[key] = cut_into_blocks(graph, block_edges, cut)
        return found

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """The graph, and the values or the weight."""
        matrix = self.given
        need(x.is_cpu and (weight is None or weight.is_cpu))
        if not self.fused:
            if is_matrix(matrix):
                _check_gradients(matrix, matrix.values())
            return Factors(self.graph(), weight)
        need(not autocasts(x))
        if is_matrix(matrix):
            return matrix_product(matrix, x, reduce)
        # Where messages are the sources' features alone, PyG takes the values away first.
        return tensor_product(matrix, x, reduce, weighted)


def is_adjacency(edge_index: Any) -> bool:
    """Return whether edges are given as a sparse matrix, of torch's own or of torch_sparse."""
    return is_matrix(edge_index) or is_sparse_tensor(edge_index)


def adjacency_reason(matrix: Any) -> str | None:
    """Return why the edges of a sparse matrix cannot be taken; None if they can. No contents are read."""
    return matrix_reason(matrix) if is_matrix(matrix) else sparse_tensor_reason(matrix)


def values_of(matrix: Any) -> Tensor | None:
    """[E] or [E, D]: the values of a sparse matrix; None where a SparseTensor has none."""
    values: Tensor | None = matrix.values() if is_matrix(matrix) else matrix.storage._value
    return values


def with_values(names: Collection[str], matrix: Any, operands: dict[str, Any]) -> dict[str, Any]:
    """The operands of a layer that runs its message, with a matrix's values where PyG puts them.

    Args:
        names: The arguments of the layer's functions.
        matrix: The matrix.
        operands: What ``propagate`` gets, by name.
    """
    name = next((each for each in _PLACES if each in names), None)
    if name is None or name not in operands or operands[name] is not None:
        return operands
    values = values_of(matrix)
    if name == "edge_attr" and values is not None and values.dim() == 1:
        values = None
    return {**operands, name: values}


def tensor_product(adj_t: Any, x: Tensor, reduce: str, weighted: bool = True) -> Factors:
    """The factors of PyG's product with a SparseTensor (``spmm``).

    Features of two dimensions and values that need no gradient go to torch's own product, in the dtype of the
    features. All others go to torch_sparse: a gradient reaches each value, repeated entries too, and an
    extremum is that of the numbers greater, or less, than what came before, so that NaN and infinities get
    lost.

    Args:
        adj_t: [num_dst, num_src], for which :func:`.sparse_tensor_reason` has nothing to say.
        x: [num_src, F] or [B, num_src, F], on the CPU.
        reduce: "sum", "mean", "max" or "min".
        weighted: Whether its values count.

    Raises:
        Leave: PyG's own product has to run.
    """
    values = adj_t.storage._value if weighted else None
    # Of no entries at all PyG gives zeros that need no gradient.
    need(adj_t.nnz() > 0)
    further = values is not None and values.dim() != 1
    need(not further, "edge_index is a SparseTensor whose values have further dimensions")
    need(x.dim() == _MATRIX or (x.dim() == _BATCHED and reduce in ("sum", "mean")))
    graph = graph_of_tensor(adj_t)
    if graph is None:
        raise Leave(OUT_OF_RANGE)
    learned = values is not None and values.requires_grad
    first = reduce in ("max", "min") and (learned or (x.requires_grad and torch.is_grad_enabled()))
    if first:
        _check_first(graph, x, values)
    if values is None:
        return Factors(graph, first=first)
    if values.requires_grad:
        return Factors(graph, values.to(x.dtype), first=first)
    # PyG rounds values to the dtype of the features first.
    rounded = reduce not in ("sum", "mean") or values.dtype is not x.dtype
    scale = None if rounded else degree_scale_of(values, graph)
    weight = None if scale is not None or are_ones(values) else values.to(x.dtype)
    return Factors(graph, weight, scale, first)


def matrix_product(matrix: Tensor, x: Tensor, reduce: str) -> Factors:
    """The factors of PyG's product with a matrix of torch's own (``spmm``).

    Args:
        matrix: [num_dst, num_src], for which :func:`.matrix_reason` has nothing to say.
        x: [num_src, F], on the CPU.
        reduce: "sum", "mean", "max" or "min".

    Raises:
        Leave: PyG's own product has to run.
    """
    values = matrix.values()
    need(values.dim() == 1, "edge_index is a sparse matrix with further dimensions")
    need(x.dim() == _MATRIX and values.dtype is x.dtype)
    # A mean over CSC is a sum in PyG, and then divided.
    is_sum = reduce == "sum" or (reduce == "mean" and matrix.layout is torch.sparse_csc)
    need(not is_sum or x.dtype in _EXACT)
    structure, graph = _check_gradients(matrix, values)
    differentiates = torch.is_grad_enabled() and (x.requires_grad or values.requires_grad)
    first = reduce in ("max", "min") and differentiates
    if first:
        _check_first(graph, x, values)
    weight: Tensor | None = values
    scale = None
    if not values.requires_grad:
        scale = scale_of(values, graph, x.dtype) if reduce in ("sum", "mean") else None
        if scale is not None or structure.are_ones(values):
            weight = None
    if weight is not None and matrix.layout is torch.sparse_coo:
        # As in PyG, whose CSR of it is another: PyG itself raises the version of a COO matrix that was saved.
        weight = weight.clone()
    return Factors(graph, weight, scale, first)


def _check_gradients(matrix: Tensor, values: Tensor) -> tuple[Structure, Graph]:
    """The edges of a matrix whose values may need a gradient."""
    structure = structure_of(matrix)
    graph = structure.graph(matrix)
    if graph is None:
        raise Leave(OUT_OF_RANGE)
    if torch.is_grad_enabled() and values.requires_grad:
        if matrix.layout is torch.sparse_csc:
            raise Leave("torch gives no gradients to the values of a CSC matrix")
        if not structure.has_distinct_entries(graph):
            raise Leave("torch gives gradients to values of distinct, ascending columns in every row")
    return structure, graph


def _check_first(graph: Graph, x: Tensor, values: Tensor | None) -> None:
    """Raises Leave where the first of the edges that tie cannot be found as PyG does."""
    need(x.dtype in _EXACT, f"{_ONE_EDGE}, in float32 and float64 alone")
    on_kernels = graph.num_edges <= MOST_EDGES and session.now.settings.backend in ("", "cpu")
    need(on_kernels, f"{_ONE_EDGE}, on the CPU's kernels alone")
    finite = _is_finite(x) and (values is None or _is_finite(values))
    need(finite, f"{_ONE_EDGE}, and a feature is not finite")


def _is_finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.detach().abs().sum()))
