"""PyG's ``ClusterData``, divided by onehop's partition where PyG has no METIS."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.loader import ClusterData

from onehop.graph import Graph
from onehop.integrations.pyg.neighbours import wanted
from onehop.integrations.rows import Row


def rows() -> list[Row]:
    """The row of the patch table."""
    return [Row(ClusterData, "_metis", _dividing(ClusterData._metis), ClusterData._metis)]


def _dividing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def _metis(self: Any, edge_index: Tensor, num_nodes: int) -> Tensor:
        if not wanted():
            return theirs(self, edge_index, num_nodes)  # type: ignore[no-any-return]
        # It brings what runs on several processes, of which few users of clusters have any.
        from onehop.distributed.partition import partition

        graph = Graph.from_edge_index(edge_index, num_nodes)
        return partition(graph, self.num_parts).to(device=edge_index.device, dtype=edge_index.dtype)

    return _metis
