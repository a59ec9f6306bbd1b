"""Relations between types of nodes, divided: one division of each type, and a part of each relation."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.agreement import from_first, gathered, introduce, place, same, together
from onehop.distributed.division import ListDivision
from onehop.distributed.fingerprint import fingerprint
from onehop.distributed.numbering import inner_first
from onehop.distributed.owners import checked_owner
from onehop.distributed.part import Part
from onehop.distributed.typed_partition import Relation, check_types, partition_types
from onehop.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class DividedRelations:
    """One process's parts of the relations between types of nodes.

    Attributes:
        parts: By relation.
        owned_nodes: By type, [n], int32.
    """

    parts: dict[Relation, Part]
    owned_nodes: dict[str, Tensor]


def divided_relations(
    edges: Mapping[Relation, Tensor],
    num_nodes: Mapping[str, int],
    method: str,
    seed: int,
    owner: Mapping[str, Tensor] | None,
    group: dist.ProcessGroup | None,
) -> DividedRelations:
    """Divides relations over the processes; see :meth:`DistributedHeteroGraph.from_edge_index_dict`."""
    rank, parts = place(group)
    doing = "dividing a graph of several types"
    introduce(doing, group)
    together(doing, lambda: check_types(edges, num_nodes), group)
    given = None if owner is None else together(doing, lambda: _checked(owner, num_nodes, parts), group)
    mark = fingerprint(*edges.values(), *(() if given is None else given.values()))
    same(
        "the edges, numbers of nodes or owners",
        gathered(doing, (list(edges), list(num_nodes.items()), mark), group),
        "Give every rank the same relations and types in the same order; each takes its own rows.",
    )
    if given is None:

        def joined() -> Tensor:
            return torch.cat([*partition_types(edges, num_nodes, parts, method, seed).values(), _NONE])

        found = from_first(doing, joined, sum(num_nodes.values()), group)
        given = dict(zip(num_nodes, found.split(list(num_nodes.values())), strict=True))
    divisions = {
        relation: ListDivision(
            each,
            given[relation[2]],
            parts,
            None if relation[0] == relation[2] else given[relation[0]],
        )
        for relation, each in edges.items()
    }
    rows = {}
    for kind, owners in given.items():
        # Rows that need no others in any relation come first.
        boundary = torch.zeros(len(owners), dtype=torch.bool, device="cpu")
        for (_, _, target), division in divisions.items():
            if target == kind:
                boundary |= division.boundary
        rows[kind] = inner_first(owners, boundary, parts)
    made = {}
    for (source, name, target), division in divisions.items():
        division.number(rows[target], rows[source])
        made[source, name, target] = division.part(rank)
    return DividedRelations(made, {kind: numbering.owned(rank) for kind, numbering in rows.items()})


_NONE = torch.empty(0, dtype=torch.int32, device="cpu")


def _checked(owner: Mapping[str, Tensor], num_nodes: Mapping[str, int], parts: int) -> dict[str, Tensor]:
    if not isinstance(owner, Mapping) or owner.keys() != num_nodes.keys():
        raise ArgumentError(f"owner: expected ranks for each of the types {', '.join(num_nodes)}.")
    return {kind: checked_owner(owner[kind], nodes, parts) for kind, nodes in num_nodes.items()}
