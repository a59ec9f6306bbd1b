"""Checks of the operators' arguments, on this process."""

from torch import Tensor

from onehop.distributed.graph import DistributedGraph
from onehop.errors import ArgumentError
from onehop.ops.checks import check_features


def check_part(graph: object) -> None:
    """Raises unless ``graph`` is a DistributedGraph."""
    if not isinstance(graph, DistributedGraph):
        raise ArgumentError(
            f"graph: expected an onehop.distributed.DistributedGraph, got {type(graph).__name__}; make one "
            "with DistributedGraph.from_edge_index, or use the function of the same name in onehop."
        )


def check_rows(name: str, x: Tensor, graph: DistributedGraph) -> None:
    """Raises unless ``x`` has a row for every node that this process owns."""
    check_features(name, x, graph.num_nodes, f"nodes that rank {graph.rank} owns (x[graph.owned_nodes])")
