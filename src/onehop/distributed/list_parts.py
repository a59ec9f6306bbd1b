"""The parts of one process if every process has, and divides, the whole lists of edges."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.agreement import from_first, gathered, introduce, place, same, together
from onehop.distributed.division import ListDivision, fingerprint
from onehop.distributed.numbering import inner_first
from onehop.distributed.part import Part
from onehop.distributed.partition import Method, Relation, check_types, partition, partition_types
from onehop.errors import ArgumentError
from onehop.graph import Graph

_DOING = "DistributedGraph.from_edge_index"
_ENDS = 2


def part_of_nodes(
    edge_index: Tensor,
    num_nodes: int | None,
    method: Method,
    seed: int,
    owner: Any,
    group: dist.ProcessGroup | None,
) -> Part:
    """Return this process's part of a graph whose sources and destinations are the same nodes."""
    rank, parts = place(group)
    introduce(_DOING, group)
    whole = together(_DOING, lambda: Graph.from_edge_index(edge_index, num_nodes), group)
    nodes = whole.num_dst
    owners = None if owner is None else together(_DOING, lambda: checked_owner(owner, nodes, parts), group)
    mark = fingerprint(edge_index) if owners is None else fingerprint(edge_index, owners)
    same(
        "edge_index, num_nodes or owner",
        gathered(_DOING, (nodes, mark), group),
        "Give every rank the same graph; each takes its own rows of it.",
    )
    if owners is None:
        owners = from_first(_DOING, lambda: partition(whole, parts, method, seed), nodes, group)
    return ListDivision(edge_index, owners, parts).part(rank)


def part_of_two_sides(
    edge_index: Tensor,
    num_nodes: int | None,
    size: tuple[int, int],
    method: Method,
    seed: int,
    owner: Any,
    group: dist.ProcessGroup | None,
) -> Part:
    """Return this process's part of a bipartite graph, for :meth:`DistributedGraph.from_edge_index`."""
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
    parts, _ = divided_relations({relation: edge_index}, nodes, method, seed, owners, group)
    return parts[relation]


def divided_relations(
    edges: Mapping[Relation, Tensor],
    num_nodes: Mapping[str, int],
    method: Method,
    seed: int,
    owner: Mapping[str, Tensor] | None,
    group: dist.ProcessGroup | None,
) -> tuple[dict[Relation, Part], dict[str, Tensor]]:
    """Divide relations over the processes; see :meth:`DistributedHeteroGraph.from_edge_index_dict`.

    Returns this process's parts by relation, and the nodes that it owns by type: [n], int32.
    """
    rank, parts = place(group)
    doing = "dividing a graph of several types"
    introduce(doing, group)
    together(doing, lambda: check_types(edges, num_nodes), group)
    by_type = None if owner is None else together(doing, lambda: _checked(owner, num_nodes, parts), group)
    mark = fingerprint(*edges.values(), *(() if by_type is None else by_type.values()))
    same(
        "the edges, numbers of nodes or owners",
        gathered(doing, (list(edges), list(num_nodes.items()), mark), group),
        "Give every rank the same relations and types in the same order; each takes its own rows.",
    )
    if by_type is None:

        def joined() -> Tensor:
            return torch.cat([*partition_types(edges, num_nodes, parts, method, seed).values(), _NONE])

        all_owners = from_first(doing, joined, sum(num_nodes.values()), group)
        by_type = dict(zip(num_nodes, all_owners.split(list(num_nodes.values())), strict=True))
    divisions = {
        relation: ListDivision(
            each,
            by_type[relation[2]],
            parts,
            None if relation[0] == relation[2] else by_type[relation[0]],
        )
        for relation, each in edges.items()
    }
    rows = {}
    for kind, owners in by_type.items():
        # Rows that need no rows of other processes in any relation come first.
        boundary = torch.zeros(len(owners), dtype=torch.bool, device="cpu")
        for (_, _, target), division in divisions.items():
            if target == kind:
                boundary |= division.boundary
        rows[kind] = inner_first(owners, boundary, parts)
    by_relation = {}
    for (source, name, target), division in divisions.items():
        division.number(rows[target], rows[source])
        by_relation[source, name, target] = division.part(rank)
    return by_relation, {kind: numbering.owned(rank) for kind, numbering in rows.items()}


_NONE = torch.empty(0, dtype=torch.int32, device="cpu")


def _checked(owner: Mapping[str, Tensor], num_nodes: Mapping[str, int], parts: int) -> dict[str, Tensor]:
    if not isinstance(owner, Mapping) or owner.keys() != num_nodes.keys():
        raise ArgumentError(f"owner: expected ranks for each of the types {', '.join(num_nodes)}.")
    return {kind: checked_owner(owner[kind], nodes, parts) for kind, nodes in num_nodes.items()}


def checked_owner(owner: object, nodes: int, parts: int) -> Tensor:
    """Return [N], int32: the rank that owns each node; raise an ArgumentError for any other argument."""
    if (
        not isinstance(owner, Tensor)
        or owner.shape != (nodes,)
        or owner.dtype not in (torch.int32, torch.int64)
    ):
        raise ArgumentError(f"owner: expected an int32 or int64 tensor [{nodes}], a rank for each node.")
    if nodes and (int(owner.min()) < 0 or int(owner.max()) >= parts):
        raise ArgumentError(
            f"owner: expected ranks from 0 to {parts - 1}, got {int(owner.min())} to {int(owner.max())}."
        )
    return owner.int()
