"""Graphs of tensors of edges that are known when the tensors are made."""

from collections.abc import Hashable

from torch import Tensor

from onehop.graph.graph import Graph
from onehop.graph.identity import CACHE


def graph_key(num_src: int, num_dst: int, forwards: bool) -> Hashable:
    """The key, beside the tensor itself, under which the cache keeps the graph of an ``edge_index``.

    Args:
        num_src: Number of sources.
        num_dst: Number of destinations.
        forwards: Whether row 0 holds the sources, or the destinations.
    """
    return ("graph", num_src, num_dst, forwards)


def note_graph(edge_index: Tensor, graph: Graph) -> None:
    """Lets whoever asks for the graph of ``edge_index``, [2, E], find this one while it is unchanged."""
    CACHE.store(edge_index, graph_key(graph.num_src, graph.num_dst, True), graph)
