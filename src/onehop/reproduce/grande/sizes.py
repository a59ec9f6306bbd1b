"""Sizes of the matrices (Table 1)."""

from onehop.graph import Graph
from onehop.reproduce.grande.graphs import HIDDEN, Twin
from onehop.reproduce.rows import Row

# The table's sizes fit this on every row: a column and a value an edge, and hardly any row structure.
_EDGE_BYTES, _NODE_BYTES, _ITEM_BYTES = 8, 1, 4


def rows(twin: Twin, graph: Graph, quick: bool) -> list[Row]:
    """Adjacency and features of one graph; of a part of the twin, divided by its share."""
    share = twin.scale(quick)
    extrapolated = "" if share == 1 else f" Extrapolated from {share:g} of the twin."
    adjacency = (graph.num_edges * _EDGE_BYTES + graph.num_dst * _NODE_BYTES) / share / 1e6
    features = graph.num_src * HIDDEN * _ITEM_BYTES / share / 1e6
    return [
        Row(
            figure=f"adjacency of {twin.name}, self loops included",
            paper=twin.adjacency_mb,
            ours=adjacency,
            unit="MB",
            note="The twin has the graph's numbers of nodes and edges." + extrapolated,
        ),
        Row(
            figure=f"{HIDDEN} columns of features of {twin.name}",
            paper=twin.features_mb,
            ours=features,
            unit="MB",
            note="The twin has the graph's number of nodes." + extrapolated,
        ),
    ]
