"""The edges of a DGLGraph, which is recognised by its methods without importing DGL."""

from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError


def edges_of(graph: Any) -> tuple[Tensor, tuple[int, int]]:
    """Return the edges of a DGLGraph, or of a DGL block, in the order of their numbers.

    This is the order of ``graph.edata``, so ``graph.edata["w"]`` is a weight in this order.

    Args:
        graph: A graph with one edge type; of a heterogeneous graph, pass one relation: ``graph[etype]``.

    Returns:
        [2, E], sources in the first row and destinations in the second, on the device of the DGLGraph; and
        (num_src, num_dst).

    Raises:
        ArgumentError: ``graph`` is not a DGLGraph, or has several edge types.
    """
    etypes = getattr(graph, "canonical_etypes", None)
    if etypes is None or not hasattr(graph, "num_src_nodes"):
        raise ArgumentError(f"graph: expected a DGLGraph, got {type(graph).__name__}.")
    if len(etypes) != 1:
        raise ArgumentError(
            f"graph: expected a DGLGraph with one type of edges, got {len(etypes)}; give one relation of it: "
            f"graph[etype]."
        )
    edge_index = by_number(graph.edges(form="all", order=None), graph.formats()["created"])
    return edge_index, (graph.num_src_nodes(), graph.num_dst_nodes())


def by_number(edges: tuple[Tensor, Tensor, Tensor], formats: list[str]) -> Tensor:
    """Return edges that DGL listed in any order, in the order of their numbers, [2, E].

    To list edges in the order of their numbers, DGL needs COO, which a graph's formats may exclude. In any
    order, DGL lists them from an existing format; from COO, they come in the order of their numbers.
    ``edges`` are sources, destinations and numbers, [E] each; the numbers are [0] if they are consecutive.
    """
    source, target, number = edges
    listed = torch.stack([source, target])
    if "coo" in formats or len(number) == 0:
        return listed
    ordered = torch.empty_like(listed)
    ordered[:, number.long()] = listed
    return ordered
