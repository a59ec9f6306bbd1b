"""Reordering of a graph's nodes for a simulated GPU kernel: the columns of every row are ascending."""

import numpy as np
import torch

from onehop.errors import ArgumentError, check_choice
from onehop.graph import Graph
from onehop.graph.edges import edges_of_keys
from onehop.graph.orders import node_orders

ORDERS = ("own", "random", "degree", "rcm", "community")


def in_order(graph: Graph, order: str) -> Graph:
    """Renumber the nodes of a graph, and sort its edges by destination, then by source.

    Args:
        graph: The graph.
        order: One of :data:`ORDERS`: "own" keeps the numbers, "random" uses the seed 0, and the others are
            orders of :meth:`onehop.Graph.reorder`.

    Raises:
        ArgumentError: The order is unknown, or the graph's sources and destinations are not the same nodes.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import gpu
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 1, 2], [3, 3, 3]]))
        >>> gpu.in_order(graph, "degree").edge_index().tolist()  # node 3, which has most edges, is node 0 now
        [[1, 2, 3], [0, 0, 0]]
    """
    nodes = graph.num_src
    check_choice("order", order, ORDERS)
    if graph.num_dst != nodes:
        raise ArgumentError(
            f"graph: expected as many destinations as sources, which are renumbered together, got "
            f"{graph.num_dst} destinations and {nodes} sources."
        )
    source, target = (each.numpy() for each in graph.edge_index())
    if order != "own":
        first = (
            np.random.default_rng(0).permutation(nodes)
            if order == "random"
            else node_orders(graph.csr, order).dst.numpy()
        )
        number_of = np.empty(nodes, dtype=np.int64)
        number_of[first] = np.arange(nodes)
        source, target = number_of[source], number_of[target]
    by_target: torch.Tensor = edges_of_keys(np.sort(target * nodes + source), nodes)
    return Graph.from_edge_index(by_target.flip(0), num_nodes=nodes)
