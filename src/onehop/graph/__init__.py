"""Graphs, their statistics, their files, and the cache that recognises them."""

from onehop.graph.graph import Graph, by_number
from onehop.graph.reorder import Reordering
from onehop.graph.statistics import GraphStatistics

__all__ = ["Graph", "GraphStatistics", "Reordering", "by_number"]
