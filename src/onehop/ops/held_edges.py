"""Operands with a row for each edge in programs, where they may have more rows than the graph has edges.

How many edges a graph with self loops has depends on how many it had of its own, and the shapes of a compiled
program must not depend on what a tensor contains. So there is a row for each edge that there can be.
"""

import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph


def of_edges(rows: Tensor, graph: Graph) -> Tensor:
    """The rows of the graph's edges.

    Args:
        rows: [E or more, ...].
        graph: The graph, of E edges.

    Raises:
        ArgumentError: There are fewer rows than edges.
    """
    edges = graph.num_edges
    if rows.size(0) < edges:
        raise ArgumentError(f"edge operand: expected a row for each of {edges} edges, got {rows.size(0)}.")
    return rows if rows.size(0) == edges else rows[:edges]


def with_edges(rows: Tensor, edges: int) -> Tensor:
    """The rows, and zeros behind them up to this number."""
    missing = edges - rows.size(0)
    return rows if not missing else torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))])
