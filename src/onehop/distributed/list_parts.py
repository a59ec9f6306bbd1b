"""The part of one process, where every process has the whole list of edges and all of them divide it."""

from typing import Any

import torch.distributed as dist
from torch import Tensor

from onehop.distributed.agreement import from_first, gathered, introduce, place, same, together
from onehop.distributed.division import ListDivision
from onehop.distributed.fingerprint import fingerprint
from onehop.distributed.owners import checked_owner
from onehop.distributed.part import Part
from onehop.distributed.partition import partition
from onehop.distributed.relations import divided_relations
from onehop.errors import ArgumentError
from onehop.graph import Graph

_DOING = "DistributedGraph.from_edge_index"
_ENDS = 2


def part_of_nodes(
    edge_index: Tensor,
    num_nodes: int | None,
    method: str,
    seed: int,
    owner: Any,
    group: dist.ProcessGroup | None,
) -> Part:
    """The part of a graph of one kind of nodes; see :meth:`DistributedGraph.from_edge_index`."""
    rank, parts = place(group)
    introduce(_DOING, group)
    whole = together(_DOING, lambda: Graph.from_edge_index(edge_index, num_nodes), group)
    nodes = whole.num_dst
    given = None if owner is None else together(_DOING, lambda: checked_owner(owner, nodes, parts), group)
    mark = fingerprint(edge_index) if given is None else fingerprint(edge_index, given)
    same(
        "edge_index, num_nodes or owner",
        gathered(_DOING, (nodes, mark), group),
        "Give every rank the same graph; each takes its own rows of it.",
    )
    if given is None:
        given = from_first(_DOING, lambda: partition(whole, parts, method, seed), nodes, group)
    return ListDivision(edge_index, given, parts).part(rank)


def part_of_two_sides(
    edge_index: Tensor,
    num_nodes: int | None,
    size: tuple[int, int],
    method: str,
    seed: int,
    owner: Any,
    group: dist.ProcessGroup | None,
) -> Part:
    """The part of a bipartite graph; see :meth:`DistributedGraph.from_edge_index`."""
    place(group)
    introduce(_DOING, group)

    def named() -> tuple[dict[str, int], dict[str, Tensor] | None]:
        if num_nodes is not None or len(size) != _ENDS:
            raise ArgumentError(f"size: expected (sources, destinations) and no num_nodes, got {size!r}.")
        if owner is not None and (not isinstance(owner, tuple | list) or len(owner) != _ENDS):
            raise ArgumentError("owner: expected a pair, of the sources and of the destinations.")
        names = ("source", "destination")
        owners = None if owner is None else dict(zip(names, owner, strict=True))
        return dict(zip(names, size, strict=True)), owners

    relation = ("source", "to", "destination")
    nodes, owners = together(_DOING, named, group)
    return divided_relations({relation: edge_index}, nodes, method, seed, owners, group).parts[relation]
