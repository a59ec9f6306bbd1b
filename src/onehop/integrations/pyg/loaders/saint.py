"""PyG's GraphSAINT samplers and ``ClusterData`` without torch-sparse.

The samplers use a class with the methods of ``SparseTensor`` that they need, and ``ClusterData`` uses
onehop's partition instead of METIS.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.loader import ClusterData, graph_saint

from onehop.graph import Graph
from onehop.integrations.pyg.loaders.neighbours import needed
from onehop.integrations.rows import Row, replacing
from onehop.loaders.walks import random_walk


class Adjacency:
    """A sparse matrix, sorted by row and column, with the methods of ``SparseTensor`` that PyG calls.

    Args:
        row: [E], int64.
        col: [E], int64.
        value: [E], the number of each edge.
        sparse_sizes: (number of rows, number of columns).
    """

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, sparse_sizes: tuple[int, int]) -> None:
        order = torch.argsort(row * max(sparse_sizes[1], 1) + col, stable=True)
        self._row, self._col, self._value = row[order], col[order], value[order]
        self._sizes = sparse_sizes
        self._counts = torch.bincount(row, minlength=sparse_sizes[0])
        self._starts = self._counts.cumsum(0) - self._counts

    @property
    def storage(self) -> "Adjacency":
        """Return the matrix itself, which has the arrays."""
        return self

    def row(self) -> Tensor:
        """Return the row of each entry, [E]."""
        return self._row

    def value(self) -> Tensor:
        """Return the value of each entry, [E]."""
        return self._value

    def rowcount(self) -> Tensor:
        """Return the number of entries of each row."""
        return self._counts

    def colcount(self) -> Tensor:
        """Return the number of entries of each column."""
        return torch.bincount(self._col, minlength=self._sizes[1])

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows, columns and values, [E] each."""
        return self._row, self._col, self._value

    def random_walk(self, start: Tensor, walk_length: int) -> Tensor:
        """Draws walks from rows to columns with torch's generator; a walk stays at a row without entries.

        Args:
            start: [n], int64.
            walk_length: Number of steps.

        Returns:
            [n, walk_length + 1], int64.
        """
        rowptr = torch.cat([self._starts, self._counts.sum(0, keepdim=True)])
        return random_walk(rowptr, self._col, start, walk_length)

    def saint_subgraph(self, nodes: Tensor) -> tuple["Adjacency", Tensor]:
        """Return the entries between some nodes; rows and columns are numbered by position in ``nodes``.

        Args:
            nodes: [n], int64, distinct.

        Returns:
            The matrix, [n, n], and the values of its entries.
        """
        place = torch.full((self._sizes[0],), -1, device="cpu")
        place[nodes] = torch.arange(nodes.numel(), device="cpu")
        counts = self._counts[nodes]
        row = torch.repeat_interleave(torch.arange(nodes.numel(), device="cpu"), counts)
        first = torch.repeat_interleave(self._starts[nodes] - (counts.cumsum(0) - counts), counts)
        entry = first + torch.arange(row.numel(), device="cpu")
        col = place[self._col[entry]]
        inside = col >= 0
        value = self._value[entry[inside]]
        size = (nodes.numel(), nodes.numel())
        return Adjacency(row[inside], col[inside], value, size), value


def rows() -> list[Row]:
    """Return the rows of the patch table."""
    theirs: Any = graph_saint.SparseTensor

    def adjacency(**arguments: Any) -> Any:
        return Adjacency(**arguments) if needed() else theirs(**arguments)

    return [
        Row(graph_saint, "SparseTensor", adjacency, theirs),
        replacing(ClusterData, "_metis", _metis, where=needed),
    ]


def _metis(_: Any, clusters: Any, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Replaces ``ClusterData._metis``: return the part of each node, [num_nodes]."""
    # The import is here because it loads onehop.distributed, which few programs need.
    from onehop.distributed.partition import partition

    graph = Graph.from_edge_index(edge_index, num_nodes)
    return partition(graph, clusters.num_parts).to(device=edge_index.device, dtype=edge_index.dtype)
