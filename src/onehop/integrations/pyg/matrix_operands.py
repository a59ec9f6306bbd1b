"""Operands of ``propagate`` over a sparse matrix, as PyG understands them.

A layer that has a fused path of PyG's own (``message_and_aggregate``) multiplies by the matrix there: every
message is the source's features times the matrix's value, and nothing else that the layer was given counts.
The gradient of a max or min then goes to the first of the edges that tie. Every other layer runs its message,
with the values for its weight where it was given none. A SparseTensor's own rules are in
:mod:`onehop.integrations.pyg.sparse_tensor_products`.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.integrations import session
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, OUT_OF_RANGE, source_of, weight_of
from onehop.integrations.pyg.derived_matrices import scale_of
from onehop.integrations.pyg.matrices import Structure, is_matrix, matrix_reason, structure_of
from onehop.integrations.pyg.recognise import Form, fused_functions
from onehop.integrations.pyg.sparse_tensor_products import factors_of, product_reason
from onehop.integrations.pyg.sparse_tensors import graph_of_tensor, is_sparse_tensor, sparse_tensor_reason
from onehop.ops.arg_extremum import MOST_EDGES
from onehop.ops.contexts import autocasts

# Torch adds up and multiplies by matrices in no other dtypes.
_EXACT = (torch.float32, torch.float64)
_MATRIX = 2


@dataclass(frozen=True, slots=True)
class MatrixOperands:
    """The operands of an aggregation over the edges of a sparse matrix.

    Attributes:
        graph: The edges.
        x: [num_src, F], the features.
        sizes: Numbers of sources and of destinations.
        weight: [E], the values or what was given in their place; None where every one is 1.
        scale: [N], numbers whose products over the ends of the edges the weight is, in its place; or None.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
    """

    graph: Graph
    x: Tensor
    sizes: list[int | None]
    weight: Tensor | None
    scale: Tensor | None
    first: bool


def is_adjacency(edge_index: Any) -> bool:
    """Return whether edges are given as a sparse matrix, of torch's own or of torch_sparse."""
    return is_matrix(edge_index) or is_sparse_tensor(edge_index)


def operands_over(
    layer: Any, form: Form, reduce: str, matrix: Any, kwargs: dict[str, Any]
) -> MatrixOperands | str:
    """The operands of a layer over a sparse matrix; or why it has no fast path.

    Args:
        layer: The layer.
        form: What its messages are.
        reduce: How they are reduced.
        matrix: [num_dst, num_src].
        kwargs: What ``propagate`` gets besides.
    """
    fused = layer.fuse
    reason = adjacency_reason(matrix) or _layer_reason(layer, matrix, fused)
    if reason is not None:
        return reason
    sizes: list[int | None] = [matrix.size(1), matrix.size(0)]
    x = source_of(layer, kwargs[form.source], sizes, forwards=True)
    if isinstance(x, str):
        return x
    if not x.is_cpu or (fused and autocasts(x)):
        return LEFT_TO_PYG
    if fused:
        if is_matrix(matrix):
            return product_operands(matrix, x, sizes, reduce)
        # Where messages are the sources' features alone, PyG takes the values away first.
        return tensor_operands(matrix, x, sizes, reduce, weighted=form.weight is not None)
    values = values_of(matrix)
    if not is_matrix(matrix):
        graph = graph_of_tensor(matrix)
        return OUT_OF_RANGE if graph is None else _of_message(form, graph, x, sizes, values, kwargs)
    assert values is not None
    edges = _edges_of(matrix, values)
    return edges if isinstance(edges, str) else _of_message(form, edges[1], x, sizes, values, kwargs)


def adjacency_reason(matrix: Any) -> str | None:
    """Return why the edges of a sparse matrix cannot be taken; None if they can. No contents are read."""
    return matrix_reason(matrix) if is_matrix(matrix) else sparse_tensor_reason(matrix)


def values_of(matrix: Any) -> Tensor | None:
    """[E] or [E, D]: the values of a sparse matrix; None where a SparseTensor has none."""
    values: Tensor | None = matrix.values() if is_matrix(matrix) else matrix.storage._value
    return values


def tensor_operands(
    adj_t: Any, x: Tensor, sizes: list[int | None], reduce: str, weighted: bool = True
) -> MatrixOperands | str:
    """The operands of PyG's product with a SparseTensor (``spmm``); or why it has no fast path.

    Args:
        adj_t: [num_dst, num_src], for which :func:`.sparse_tensor_reason` has nothing to say.
        x: [num_src, F] or [B, num_src, F], on the CPU.
        sizes: Numbers of sources and of destinations.
        reduce: "sum", "mean", "max" or "min".
        weighted: Whether its values count.
    """
    values = adj_t.storage._value if weighted else None
    reason = product_reason(adj_t, x, values, reduce)
    if reason is not None:
        return reason
    graph = graph_of_tensor(adj_t)
    if graph is None:
        return OUT_OF_RANGE
    learned = values is not None and values.requires_grad
    first = reduce in ("max", "min") and (learned or (x.requires_grad and torch.is_grad_enabled()))
    if first:
        reason = _first_reason(graph, x, values)
        if reason is not None:
            return reason
    weight, scale = factors_of(values, graph, reduce, x.dtype)
    return MatrixOperands(graph, x, sizes, weight, scale, first)


def product_operands(matrix: Tensor, x: Tensor, sizes: list[int | None], reduce: str) -> MatrixOperands | str:
    """The operands of PyG's product with a matrix (``spmm``); or why it has no fast path.

    Args:
        matrix: [num_dst, num_src], for which :func:`.matrix_reason` has nothing to say.
        x: [num_src, F], on the CPU.
        sizes: Numbers of sources and of destinations.
        reduce: "sum", "mean", "max" or "min".
    """
    values = matrix.values()
    reason = _fused_reason(x, matrix, values, reduce)
    if reason is not None:
        return reason
    edges = _edges_of(matrix, values)
    if isinstance(edges, str):
        return edges
    graph = edges[1]
    differentiates = torch.is_grad_enabled() and (x.requires_grad or values.requires_grad)
    first = reduce in ("max", "min") and differentiates
    if first:
        reason = _first_reason(graph, x, values)
        if reason is not None:
            return reason
    weight, scale = _factors(edges, values, reduce, x.dtype)
    if weight is not None and matrix.layout is torch.sparse_coo:
        # As in PyG, whose CSR of it is another: PyG itself raises the version of a COO matrix that was saved.
        weight = weight.clone()
    return MatrixOperands(graph, x, sizes, weight, scale, first)


def _edges_of(matrix: Tensor, values: Tensor) -> tuple[Structure, Graph] | str:
    """The edges of a matrix; or why they have no fast path."""
    structure = structure_of(matrix)
    graph = structure.graph(matrix)
    if graph is None:
        return OUT_OF_RANGE
    if torch.is_grad_enabled() and values.requires_grad:
        if matrix.layout is torch.sparse_csc:
            return "torch gives no gradients to the values of a CSC matrix"
        if not structure.has_distinct_entries(graph):
            return "torch gives gradients to values of distinct, ascending columns in every row"
    return structure, graph


def collects_reason(layer: Any, matrix: Any) -> str | None:
    """Return why a layer over a matrix does not run its message on each edge here; None if it does."""
    if layer.fuse:
        return "edge_index is a sparse matrix, for which its class has a message_and_aggregate of its own"
    return adjacency_reason(matrix) or _layer_reason(layer, matrix, fused=False)


def message_edges(layer: Any, matrix: Any) -> Graph | str:
    """The edges of a matrix for a layer that runs its message on each; or why they have no fast path."""
    reason = adjacency_reason(matrix) or _layer_reason(layer, matrix, fused=False)
    if reason is not None:
        return reason
    found = structure_of(matrix).graph(matrix) if is_matrix(matrix) else graph_of_tensor(matrix)
    return found or OUT_OF_RANGE


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


# PyG puts the values in the first of these that a layer's functions ask for, if it was given as None.
_PLACES = ("edge_weight", "edge_attr", "edge_type")


def _layer_reason(layer: Any, matrix: Any, fused: bool) -> str | None:
    """Return why the layer is left to PyG whatever its other operands; None if it is not."""
    if layer.flow != "source_to_target":
        return LEFT_TO_PYG
    if not fused:
        # Only PyG's plain propagate finds the ends of the edges of such a matrix.
        csc = is_matrix(matrix) and matrix.layout is torch.sparse_csc
        return "edge_index is a CSC matrix, and messages on its edges are PyG's to compute" if csc else None
    kind = type(layer)
    if kind.message_and_aggregate is not fused_functions().get(kind.message):
        return "its class overrides message_and_aggregate"
    if "message_and_aggregate" in layer.__dict__:
        return "this instance overrides message_and_aggregate"
    return None


def _fused_reason(x: Tensor, matrix: Tensor, values: Tensor, reduce: str) -> str | None:
    """Return why PyG's product with a matrix is left to PyG; None if it is not."""
    if values.dim() != 1:
        return "edge_index is a sparse matrix with further dimensions"
    if x.dim() != _MATRIX or values.dtype is not x.dtype:
        return LEFT_TO_PYG
    # A mean over CSC is a sum in PyG, and then divided.
    is_sum = reduce == "sum" or (reduce == "mean" and matrix.layout is torch.sparse_csc)
    if is_sum and x.dtype not in _EXACT:
        return LEFT_TO_PYG
    return None


def _first_reason(graph: Graph, x: Tensor, values: Tensor | None) -> str | None:
    """Return why the first of the edges that tie cannot be found as PyG does; None if it can."""
    if x.dtype not in _EXACT:
        return (
            "the gradient of a max or min over a sparse matrix goes to one edge, in float32 and float64 alone"
        )
    if graph.num_edges > MOST_EDGES or session.now.settings.backend not in ("", "cpu"):
        return (
            "the gradient of a max or min over a sparse matrix goes to one edge, on the CPU's kernels alone"
        )
    if not (_is_finite(x) and (values is None or _is_finite(values))):
        return (
            "the gradient of a max or min over a sparse matrix goes to one edge, and a feature is not finite"
        )
    return None


def _is_finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.detach().abs().sum()))


def _of_message(
    form: Form,
    graph: Graph,
    x: Tensor,
    sizes: list[int | None],
    values: Tensor | None,
    kwargs: dict[str, Any],
) -> MatrixOperands | str:
    """The operands of a layer that runs its message on every edge."""
    weight = None
    if form.weight is not None:
        given = kwargs[form.weight]
        # PyG collects values for arguments of this name alone.
        if given is None and form.weight == "edge_weight":
            given = values
        weight, reason = weight_of(form, {form.weight: given}, graph.num_edges)
        if reason is not None:
            return reason
        if weight is not None and not weight.is_cpu:
            return LEFT_TO_PYG
    return MatrixOperands(graph, x, sizes, weight, None, first=False)


def _factors(
    edges: tuple[Structure, Graph], values: Tensor, reduce: str, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The weight and the scale that stand for a matrix's values."""
    if values.requires_grad:
        return values, None
    structure, graph = edges
    scale = scale_of(values, graph, dtype) if reduce in ("sum", "mean") else None
    if scale is not None:
        return None, scale
    if structure.are_ones(values):
        return None, None
    return values, None
