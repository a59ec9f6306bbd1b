"""Graphs of tensors of edges that are known when the tensors are made."""

from torch import Tensor

from onehop.graph.graph import Graph
from onehop.graph.identity import CACHE


def note_graph(edge_index: Tensor, graph: Graph) -> None:
    """Notes the graph of ``edge_index``, [2, E], so that layers find it while that is unchanged."""
    # The key under which integrations/pyg/edges/listed.py looks, in the hot path.
    CACHE.store(edge_index, ("graph", graph.num_src, graph.num_dst, True), graph)
