"""Operands with a row for each edge in programs; they may have more rows than the graph has edges.

The number of edges of a graph with self loops depends on how many loops it already had, but the shapes of a
compiled program must not depend on the contents of a tensor. So there are rows for the maximal number of
edges.
"""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph


def of_edges(rows: Tensor, graph: Graph) -> Tensor:
    """Return the rows of the graph's edges.

    Args:
        rows: [E or more, ...].
        graph: The graph, with E edges.

    Raises:
        ArgumentError: There are fewer rows than edges.
    """
    edges = graph.num_edges
    if rows.size(0) < edges:
        raise ArgumentError(f"edge operand: expected a row for each of {edges} edges, got {rows.size(0)}.")
    return rows if rows.size(0) == edges else rows[:edges]


def with_edges(rows: Tensor, edges: int) -> Tensor:
    """Return the rows, padded with zeros up to ``edges`` rows."""
    missing = edges - rows.size(0)
    return rows if not missing else torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))])
