"""Partitioning of nodes of several types: all types at once, so that neighbours of any type stay together."""

from collections.abc import Mapping

import torch
from torch import Tensor

from onehop.distributed.partition import partition
from onehop.errors import ArgumentError
from onehop.graph import Graph

Relation = tuple[str, str, str]
"""The type of the sources, the name, and the type of the destinations, as PyG writes it."""


def partition_types(
    edges: Mapping[Relation, Tensor],
    num_nodes: Mapping[str, int],
    parts: int,
    method: str = "auto",
    seed: int = 0,
) -> dict[str, Tensor]:
    """The part of every node of every type.

    The relations are joined into one graph of all nodes, which :func:`onehop.distributed.partition` divides:
    the rows of all types together, and the edges of all relations, are balanced; a single type need not be.

    Args:
        edges: By relation, [2, E], int32 or int64, on the CPU: sources above destinations.
        num_nodes: By type. A bipartite graph has two types and one relation.
        parts: Number of parts.
        method: As in :func:`onehop.distributed.partition`.
        seed: Likewise.

    Returns:
        By type, [N], int32, from 0 to ``parts`` - 1.

    Raises:
        ArgumentError: A relation is of a type that ``num_nodes`` lacks, or as :func:`partition` says.
        ConfigurationError: "metis" without pymetis.
        IndexRangeError: A node number is negative or too large.
    """
    check_types(edges, num_nodes)
    first, begins = 0, {}
    for kind, nodes in num_nodes.items():
        begins[kind] = first
        first += nodes
    joined = [
        each.long() + torch.tensor([[begins[source]], [begins[target]]], device="cpu")
        for (source, _, target), each in edges.items()
    ]
    whole = Graph.from_edge_index(
        torch.cat([torch.empty(2, 0, dtype=torch.int64, device="cpu"), *joined], 1), first
    )
    owner = partition(whole, parts, method, seed)
    return {
        kind: each.clone()
        for kind, each in zip(num_nodes, owner.split(list(num_nodes.values())), strict=True)
    }


def check_types(edges: Mapping[Relation, Tensor], num_nodes: Mapping[str, int]) -> None:
    """Raises unless relations are named as PyG names them, by types whose numbers of nodes are given.

    Raises:
        ArgumentError: A name is not such a triple.
        IndexRangeError: A node number is negative or too large.
    """
    for relation, edge_index in edges.items():
        if not isinstance(relation, tuple) or len(relation) != len(("source", "name", "target")):
            raise ArgumentError(f"edges: expected names like ('user', 'rates', 'film'), got {relation!r}.")
        for kind in (relation[0], relation[2]):
            if kind not in num_nodes:
                raise ArgumentError(
                    f"num_nodes: expected a number for {kind!r}, as {relation} has it; got none."
                )
        # Checks the numbers, which a joined graph would take for those of another type.
        Graph.from_edge_index(edge_index, size=(num_nodes[relation[0]], num_nodes[relation[2]]))
