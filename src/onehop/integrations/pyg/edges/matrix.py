"""Edges as a sparse matrix [num_dst, num_src]: torch's CSR, CSC and COO, and torch_sparse's SparseTensor.

A layer with a fused path in PyG (``message_and_aggregate``) multiplies by the matrix: every message is the
source's features times the matrix's value, and other operands have no effect. The gradient of a max or min
then goes to the first of the edges that tie. Every other layer runs its message on each edge; if its weight
is None, PyG passes the matrix's values as the weight.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.integrations.pyg.edges import SOURCE, Edges, Factors
from onehop.integrations.pyg.edges.adjacency import Adjacency
from onehop.integrations.pyg.edges.matrices import LAYOUTS, TorchMatrix
from onehop.integrations.pyg.edges.sizes import number_of_edges
from onehop.integrations.pyg.edges.sparse_tensors import TorchSparseTensor, is_sparse_tensor
from onehop.integrations.pyg.leave import need
from onehop.ops.contexts import autocasts

# PyG passes the values as the first of these arguments that a layer's functions take, if it is None.
_PLACES = ("edge_weight", "edge_attr", "edge_type")


def adjacency_of(edge_index: Any) -> Adjacency | None:
    """Return the adjacency of edges that are given as a sparse matrix; None for other edges."""
    if type(edge_index) is Tensor:
        return TorchMatrix(edge_index) if edge_index.layout in LAYOUTS else None
    return TorchSparseTensor(edge_index) if is_sparse_tensor(edge_index) else None


def is_adjacency(edge_index: Any) -> bool:
    """Return whether edges are given as a sparse matrix of torch or torch_sparse."""
    return adjacency_of(edge_index) is not None


class MatrixEdges(Edges):
    """The edges of a sparse matrix, in the order of its values.

    Args:
        layer: The layer.
        matrix: [num_dst, num_src].
        product: PyG's product that a layer with a fused path runs; None without a fused path.

    Raises:
        Leave: PyG's own code has to run.

    Attributes:
        fused: Whether the layer multiplies by the matrix.
    """

    __slots__ = ("_adjacency", "_graph", "fused")

    def __init__(self, layer: Any, matrix: Any, product: Any) -> None:
        adjacency = adjacency_of(matrix)
        assert adjacency is not None
        adjacency.check()
        self._adjacency = adjacency
        need(layer.flow == "source_to_target")
        self.fused: bool = layer.fuse
        if self.fused:
            overrides = type(layer).message_and_aggregate is not product
            need(not overrides, "its class overrides message_and_aggregate")
            overridden = "message_and_aggregate" in layer.__dict__
            need(not overridden, "this instance overrides message_and_aggregate")
        else:
            # Only PyG's plain propagate finds the ends of the edges of a CSC matrix.
            csc = type(matrix) is Tensor and matrix.layout is torch.sparse_csc
            need(not csc, "edge_index is a CSC matrix, and messages on its edges are PyG's to compute")
        self.edge_index, self.count = matrix, number_of_edges(matrix)
        self.forwards, self.sending, self.is_cpu = True, SOURCE, True
        self.sizes = [matrix.size(1), matrix.size(0)]
        self._graph: Graph | None = None

    @property
    def index(self) -> Tensor:  # type: ignore[override]
        """The sources, [E]."""
        return self.graph().col

    @property
    def device(self) -> torch.device:
        """The device, which is always the CPU."""
        return torch.device("cpu")

    @property
    def values(self) -> Tensor | None:
        """The values that PyG passes for a missing weight: [E] or [E, D], or None if there are none."""
        return self._adjacency.values

    def graph(self) -> Graph:
        """Return the graph of the matrix, made once and cached."""
        if self._graph is None:
            self._graph = self._adjacency.graph()
        return self._graph

    def ends(self, row: int) -> Tensor:
        """Return the sources (row 0) or the destinations (row 1), [E]."""
        return self.graph().edge_index()[row]

    @property
    def ptr_is_none(self) -> bool:
        """Return whether PyG passes None for ``ptr`` to a message over these edges (only for COO)."""
        return self._adjacency.is_coo

    def first(self, graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers, the sources and the destinations of the first ``count`` edges."""
        places = torch.arange(count, device="cpu")
        targets = torch.searchsorted(graph.rowptr, places, right=True) - 1
        return places, graph.col[:count].long(), targets

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the graph, and the matrix's values or the layer's weight."""
        need(x.is_cpu and (weight is None or weight.is_cpu))
        if self.fused:
            need(not autocasts(x))
            # If messages are only the sources' features, PyG first drops a SparseTensor's values.
            return self._adjacency.factors(x, reduce, weighted)
        self._adjacency.check_gradients()
        return Factors(self.graph(), weight)


def with_values(names: Collection[str], matrix: Any, operands: dict[str, Any]) -> dict[str, Any]:
    """Return the operands of a layer that runs its message; a matrix's values are passed as in PyG.

    Args:
        names: The arguments of the layer's functions.
        matrix: The matrix.
        operands: The operands of ``propagate`` by name.
    """
    name = next((place for place in _PLACES if place in names), None)
    if name is None or name not in operands or operands[name] is not None:
        return operands
    adjacency = adjacency_of(matrix)
    values = None if adjacency is None else adjacency.values
    if name == "edge_attr" and values is not None and values.dim() == 1:
        values = None
    return {**operands, name: values}
