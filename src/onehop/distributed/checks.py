"""Checks of the operators' arguments, on this process."""

from torch import Tensor

from onehop.distributed.graph import DistributedGraph
from onehop.errors import ArgumentError
from onehop.ops.checks import check_features


def check_part(graph: object) -> None:
    """Raise an error unless ``graph`` is a DistributedGraph."""
    if not isinstance(graph, DistributedGraph):
        raise ArgumentError(
            f"graph: expected an onehop.distributed.DistributedGraph, got {type(graph).__name__}; make one "
            "with DistributedGraph.from_edge_index, or use the function of the same name in onehop."
        )


def check_sources(name: str, x: Tensor, graph: DistributedGraph) -> None:
    """Raise an error unless ``x`` has a row for every source that this process owns."""
    if not graph.is_bipartite:
        check_rows(name, x, graph)
        return
    check_features(
        name, x, graph.num_sources, f"sources that rank {graph.rank} owns (x[graph.owned_sources])"
    )


def edges_reason(name: str, values: Tensor, graph: DistributedGraph) -> str | None:
    """Return an error sentence, or None if ``values`` has a row for each edge of the part, on its device."""
    rows = values.size(0) if values.dim() else -1
    edges = f"{graph.num_edges} edges that end in nodes of rank {graph.rank}"
    if rows != graph.num_edges:
        whole = ", as all edges of the graph have" if rows == graph.part.num_edges else ""
        return (
            f"{name}: expected a row for each of the {edges} ({name}[graph.owned_edges]), got shape "
            f"{list(values.shape)}{whole}"
        )
    if values.device != graph.device:
        return f"{name}: expected rows of the {edges} on {graph.device}, got them on {values.device}"
    return None


def check_rows(name: str, x: Tensor, graph: DistributedGraph) -> None:
    """Raise an error unless ``x`` has a row for every node that this process owns."""
    check_features(name, x, graph.num_nodes, f"nodes that rank {graph.rank} owns (x[graph.owned_nodes])")
