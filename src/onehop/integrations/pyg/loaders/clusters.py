"""PyG's ``ClusterData``, divided by onehop's partition where PyG has no METIS."""

from typing import Any

from torch import Tensor
from torch_geometric.loader import ClusterData

from onehop.graph import Graph
from onehop.integrations.pyg.loaders.neighbours import wanted
from onehop.integrations.rows import Row, replacing


def rows() -> list[Row]:
    """The row of the patch table."""
    return [replacing(ClusterData, "_metis", _metis, where=wanted)]


def _metis(_: Any, clusters: Any, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Divides for ``ClusterData._metis``: the part of each node, [num_nodes]."""
    # Imported here, because it loads onehop.distributed, which few users of clusters need.
    from onehop.distributed.partition import partition

    graph = Graph.from_edge_index(edge_index, num_nodes)
    return partition(graph, clusters.num_parts).to(device=edge_index.device, dtype=edge_index.dtype)
