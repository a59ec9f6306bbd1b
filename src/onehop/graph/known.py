"""Graphs of tensors of edges that are known when the tensors are made."""

from torch import Tensor

from onehop.graph.graph import Graph
from onehop.graph.identity import CACHE


def note_graph(edge_index: Tensor, graph: Graph) -> None:
    """Lets whoever asks for the graph of ``edge_index``, [2, E], find this one while it is unchanged."""
    # As integrations/pyg/graphs.py looks for it, in the hot path, where a function more would be felt.
    CACHE.store(edge_index, ("graph", graph.num_src, graph.num_dst, True), graph)
