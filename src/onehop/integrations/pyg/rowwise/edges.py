"""The edges of a propagation that runs the layer's own message: a tensor's, or a sparse matrix's."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop.compiler.blocks import EdgeBlocks, blocks_of, cut_into_blocks
from onehop.graph import Graph
from onehop.integrations.pyg.conditions import OUT_OF_RANGE, edges_of
from onehop.integrations.pyg.graphs import graph_of
from onehop.integrations.pyg.matrix_operands import collects_reason, is_adjacency, message_edges
from onehop.integrations.pyg.recognise import messages_with_softmax
from onehop.integrations.pyg.sizes import number_of_edges


class ListedEdges(NamedTuple):
    """Edges of an ``edge_index``.

    Attributes:
        data: [2, E], on the CPU.
        sizes: Numbers of sources and destinations as far as they are known, which operands fill in.
        forwards: Whether row 0 sends to row 1, or the other way round.
        ptr_is_none: Whether the message may be given None for ``ptr``.
    """

    data: Tensor
    sizes: list[int | None]
    forwards: bool
    ptr_is_none: bool

    @property
    def number(self) -> int:
        """The number of edges."""
        return self.data.size(1)

    def graph(self, num_src: int, num_dst: int) -> Graph | str:
        """The graph of so many nodes; or why there is none."""
        return graph_of(self.data, num_src, num_dst, self.forwards) or OUT_OF_RANGE

    def first(self, graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers, sources and destinations of so many edges."""
        first = self.data[:, :count].long()
        source, target = first.unbind() if self.forwards else first.flip(0).unbind()
        return torch.arange(count, device="cpu"), source, target

    def blocks(self, graph: Graph, block_edges: int, cut: bool) -> EdgeBlocks:
        """The graph in blocks, kept with the tensor."""
        return blocks_of(self.data, graph, block_edges, cut)


class MatrixEdges(NamedTuple):
    """Edges of a sparse matrix, in the order of its values.

    Attributes:
        layer: The layer.
        matrix: [num_dst, num_src].
        sizes: Numbers of sources and destinations.
        ptr_is_none: Whether the message may be given None for ``ptr``.
    """

    layer: Any
    matrix: Any
    sizes: list[int | None]
    ptr_is_none: bool

    @property
    def number(self) -> int:
        """The number of edges."""
        return number_of_edges(self.matrix)

    def graph(self, num_src: int, num_dst: int) -> Graph | str:
        """The graph, whose numbers of nodes are the matrix's; or why there is none."""
        return message_edges(self.layer, self.matrix)

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


def edges_for(layer: Any, edge_index: Any, size: Any, fuses: bool) -> ListedEdges | MatrixEdges | str:
    """The edges for a layer that runs its own message; or why it does not.

    Args:
        layer: The layer.
        edge_index: What ``propagate`` was called with, and
        size: its sizes, or None.
        fuses: Whether the class has a fused path of PyG's own.
    """
    if is_adjacency(edge_index):
        reason = collects_reason(layer, edge_index)
        if reason is not None:
            return reason
        # PyG has pointers for all but COO; in its own messages they go to a softmax and nowhere else.
        of_pyg = type(layer).message in messages_with_softmax()
        coo = type(edge_index) is Tensor and edge_index.layout is torch.sparse_coo
        sizes: list[int | None] = [edge_index.size(1), edge_index.size(0)]
        return MatrixEdges(layer, edge_index, sizes, of_pyg or coo)
    found = edges_of(layer, edge_index, size, fuses)
    if isinstance(found, str):
        return found
    data, sizes = found
    if not data.is_cpu:
        return "edge_index is not on the CPU, where alone messages run in blocks"
    plain = data is edge_index and type(data) is Tensor
    return ListedEdges(data, sizes, layer.flow == "source_to_target", plain)
