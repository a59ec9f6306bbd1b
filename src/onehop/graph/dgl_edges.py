"""The edges of a DGLGraph, which is recognised by its methods: DGL itself is not imported."""

from typing import Any

import torch
from torch import Tensor

from onehop.errors import ArgumentError


def edges_of(graph: Any) -> tuple[Tensor, tuple[int, int]]:
    """The edges of a DGLGraph, or of a DGL block, in the order of their numbers.

    That is the order of ``graph.edata``, so ``graph.edata["w"]`` is a weight in this order.

    Args:
        graph: With one type of edges; of several, give one relation: ``graph[etype]``.

    Returns:
        [2, E], sources above destinations, on the device of the DGLGraph; and (num_src, num_dst).

    Raises:
        ArgumentError: Not a DGLGraph, or one with several types of edges.
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
    """[2, E]: edges that DGL listed in any order, in the order of their numbers.

    To list them in the order of their numbers DGL makes COO, which a graph's formats may leave out. In any
    order it lists them from a format that is there; from COO, edges come in the order of their numbers. Takes
    sources, destinations and numbers, [E] each; numbers are [0] if they are consecutive.
    """
    source, target, number = edges
    listed = torch.stack([source, target])
    if "coo" in formats or len(number) == 0:
        return listed
    ordered = torch.empty_like(listed)
    ordered[:, number.long()] = listed
    return ordered
