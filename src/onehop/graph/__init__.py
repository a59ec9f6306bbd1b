"""Graphs, their statistics and orders, and the cache that recognises them."""

from onehop.graph.graph import Graph, PointGraph, StoredGraph, by_number
from onehop.graph.neighbor_list import NeighborList
from onehop.graph.orders import Reordering
from onehop.graph.statistics import GraphStatistics

__all__ = [
    "Graph",
    "GraphStatistics",
    "NeighborList",
    "PointGraph",
    "Reordering",
    "StoredGraph",
    "by_number",
]
