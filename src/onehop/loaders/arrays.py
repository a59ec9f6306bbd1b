"""The arrays of graphs, in memory and on disk, in the order that a sampler needs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError
from onehop.graph import Graph, StoredGraph


@dataclass(frozen=True, slots=True)
class Arrays:
    """Edges in compressed sparse rows of destinations.

    Attributes:
        rowptr: [num_dst + 1], int64.
        col: [E], int32: the source of each edge.
        perm: [E], int32 or int64: the caller's number of each edge; None if the orders agree.
    """

    rowptr: Tensor
    col: Tensor
    perm: Tensor | None

    def in_rows(self, values: Tensor) -> Tensor:
        """[E], one value an edge in the caller's order, in the order of the rows."""
        return values if self.perm is None else values[self.perm.long()]

    def numbers(self, edges: Tensor) -> Tensor:
        """[n], int64: the caller's numbers of edges that are given by their places in the rows."""
        return edges if self.perm is None else self.perm[edges].long()

    def by_time(self, time: Tensor) -> "Arrays":
        """The same rows, each with its edges in the order of their times, [E], given row by row."""
        counts = self.rowptr.diff().numpy()
        row = np.repeat(np.arange(len(counts)), counts)
        order = torch.from_numpy(np.lexsort((time.numpy(), row)))
        return Arrays(self.rowptr, self.col[order], self.numbers(order))


def arrays_of(name: str, graph: Graph | StoredGraph) -> Arrays:
    """The arrays of a graph; those of a stored one are mapped and stay on disk.

    Raises:
        ArgumentError: Not a graph.
    """
    if isinstance(graph, Graph):
        return Arrays(graph.rowptr, graph.col, graph.perm)
    if isinstance(graph, StoredGraph):
        return Arrays(_mapped(graph.rowptr_file), _mapped(graph.col_file), None)
    raise ArgumentError(
        f"{name}: expected a Graph, a StoredGraph, or a dictionary of them by (source, relation, "
        f"destination), got {type(graph).__name__}. Make one with onehop.Graph.from_edge_index(edge_index)."
    )


def _mapped(file: Path) -> Tensor:
    """A private map: torch warns of arrays that it cannot write to, and nobody writes."""
    # An empty array cannot be mapped: what is more than the header is content.
    empty = file.stat().st_size <= 128
    return torch.from_numpy(np.load(file, mmap_mode=None if empty else "c", allow_pickle=False))
