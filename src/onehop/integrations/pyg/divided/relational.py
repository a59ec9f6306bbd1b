"""RGCNConv and FastRGCNConv on a part: PyG's code on a bipartite graph of owned and received rows.

These layers select the edges of each relation themselves and take the rows of sources and destinations
separately, so the rows are received once for all relations.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, RGCNConv

from onehop.distributed.checks import check_rows, check_sources, edges_reason
from onehop.distributed.converted import among_edges
from onehop.distributed.graph import LocalEdges
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, replacing

_PAIR = 2


def rows() -> list[Row]:
    """The rows of the patch table."""
    return [replacing(kind, "forward", forward, forward) for kind in (RGCNConv, FastRGCNConv)]


def forward(
    theirs: Callable[..., Any], layer: Any, x: Any, edge_index: Any, edge_type: Any = None
) -> Tensor | None:
    """Runs a layer on a part's edges; None for other edges."""
    if type(edge_index) is not LocalEdges:
        return None
    graph = edge_index.graph
    if layer.flow != "source_to_target":
        raise ArgumentError("flow: 'target_to_source' has no path over several processes; flip the edges.")
    if not isinstance(edge_type, Tensor):
        raise ArgumentError(
            f"edge_type: expected a type for each of the {graph.num_edges} edges that end in nodes of rank "
            f"{graph.rank}, got {type(edge_type).__name__}. Take them with graph.edge_rows."
        )
    reason = edges_reason("edge_type", edge_type, graph)
    if reason is not None:
        raise ArgumentError(f"{reason}. Take them with graph.edge_rows.")
    if x is not None and not isinstance(x, Tensor) and (len(x) != _PAIR or x[1] is None):
        raise ArgumentError("x: expected rows of the owned nodes, or a pair with those of the sources first.")
    source: Any
    target: Any
    source, target = (x, x) if x is None or isinstance(x, Tensor) else x
    if source is None:
        # Nodes are numbers of rows of the weights, in the whole graph.
        whole = torch.cat([graph.owned_sources, graph.part.halo_nodes.long()])
        target = graph.owned_nodes if target is None else target
    elif not source.is_floating_point():
        if source.shape != (graph.num_sources,):
            raise ArgumentError(
                f"x: expected numbers of the {graph.num_sources} owned sources, got {list(source.shape)}."
            )
        whole = torch.cat([source, graph.exchange.values(source.unsqueeze(1)).squeeze(1)])
    else:
        check_sources("x", source, graph)
        check_rows("x", target, graph)
        whole = torch.cat([source, graph.exchange.values(source)])
    with among_edges():
        out: Tensor = theirs(layer, (whole, target), graph.derived("ends", graph.ends), edge_type)
    return out
