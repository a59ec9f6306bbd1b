"""Edges as a list: an ``edge_index`` [2, E], or PyG's ``EdgeIndex``."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from onehop.graph import Graph
from onehop.integrations.pyg.edges import SOURCE, TARGET, Edges, Factors
from onehop.integrations.pyg.edges.kept import graph_of
from onehop.integrations.pyg.edges.scales import scales_of
from onehop.integrations.pyg.leave import LEFT_TO_PYG, OUT_OF_RANGE, OWN_PRODUCT, Leave
from onehop.ops.contexts import WRAPPED, in_older_vmap, is_wrapped, wraps

_INTEGERS = (torch.int64, torch.int32)
_PAIR = 2


class ListedEdges(Edges):
    """The edges of an ``edge_index``.

    Args:
        layer: The layer.
        edge_index: [2, E], int32 or int64, or an ``EdgeIndex``.
        size: The caller's numbers of rows at both ends, or None.
        fuses: Whether the layer's class has a fused path in PyG.

    Raises:
        Leave: PyG's own code has to run.
    """

    __slots__ = ("_graph",)
    is_list = True

    def __init__(self, layer: Any, edge_index: Any, size: Any, fuses: bool) -> None:
        if type(edge_index) is Tensor:
            data = edge_index
            if data.layout is not torch.strided:
                raise Leave(OWN_PRODUCT)
            if is_wrapped(data) or (in_older_vmap() and wraps(data)):
                raise Leave(WRAPPED)
            if size is None:
                self.sizes = [None, None]
            elif isinstance(size, tuple | list) and len(size) == _PAIR:
                self.sizes = list(size)
            else:
                raise Leave(LEFT_TO_PYG)
        elif type(edge_index) is EdgeIndex:
            if fuses and layer.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col:
                raise Leave("edge_index is an EdgeIndex, for which this layer has its own code")
            # Writes to an EdgeIndex do not increase the version of the tensor inside. An EdgeIndex that was
            # made in inference mode has no version, and is never recognised.
            unwritten = edge_index.is_inference() or edge_index._version == 0
            data = edge_index.as_tensor() if unwritten else edge_index.as_tensor().clone()
            self.sizes = [edge_index.num_rows, edge_index.num_cols]
        else:
            raise Leave(f"edge_index is of type {type(edge_index).__name__}")
        shape = data.shape
        if data.dtype not in _INTEGERS or len(shape) != _PAIR or shape[0] != _PAIR:
            raise Leave(LEFT_TO_PYG)
        self.edge_index, self.index, self.count, self.is_cpu = edge_index, data, shape[1], data.is_cpu
        self.forwards = layer.flow == "source_to_target"
        self.sending = SOURCE if self.forwards else TARGET
        self._graph: Graph | None = None

    def graph(self) -> Graph:
        """Return the graph of the edges, made once and cached."""
        if self._graph is None:
            self._graph = graph_of(self.index, *self.counts(), self.forwards)
            if self._graph is None:
                raise Leave(OUT_OF_RANGE)
        return self._graph

    def ends(self, row: int) -> Tensor:
        """Return the nodes in row 0 or row 1 of ``edge_index``, [E]."""
        return self.index[row]

    def factors(self, x: Tensor, weight: Tensor | None, reduce: str, weighted: bool) -> Factors:
        """Return the graph and the weight; instead of the weight, the scale if it is known."""
        graph = self.graph()
        if weight is None or reduce not in ("sum", "mean"):
            return Factors(graph, weight)
        scale = scales_of(weight, self.index, graph.num_src, graph.num_dst, x.dtype)
        return Factors(graph, weight if scale is None else None, scale)

    @property
    def ptr_is_none(self) -> bool:
        """Return whether PyG passes None for ``ptr`` to a message over these edges."""
        return self.index is self.edge_index

    def first(self, graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers, the sources and the destinations of the first ``count`` edges."""
        first = self.index[:, :count].long()
        source, target = first.unbind() if self.forwards else first.flip(0).unbind()
        return torch.arange(count, device="cpu"), source, target
