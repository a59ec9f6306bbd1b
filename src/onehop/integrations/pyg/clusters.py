"""PyG's ``ClusterData``, divided by onehop's partition where PyG has no METIS."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.loader import ClusterData

from onehop.graph import Graph
from onehop.integrations.pyg.neighbours import wanted
from onehop.integrations.rows import Row, replacing


def rows() -> list[Row]:
    """The row of the patch table."""
    return [replacing(ClusterData, "_metis", _metis)]


def _metis(theirs: Callable[..., Any], data: Any, edge_index: Tensor, num_nodes: int) -> Tensor | None:
    """[num_nodes], the part of each node; None if PyG's code has to run."""
    if not wanted():
        return None
    # Imported here because of what it imports for several processes, which few users of clusters have.
    from onehop.distributed.partition import partition

    graph = Graph.from_edge_index(edge_index, num_nodes)
    return partition(graph, data.num_parts).to(device=edge_index.device, dtype=edge_index.dtype)
