"""A whole graph divided into parts, which are extracted one by one."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from onehop.distributed.fingerprint import fingerprint
from onehop.distributed.part import Part


class Division(ABC):
    """A partitioned graph: gives the edges that end in each part, and the rows that the part receives.

    Args:
        owner: [N], int32, the part of every node.
        parts: Number of parts.
        num_edges: Edges of the whole graph.
    """

    def __init__(self, owner: Tensor, parts: int, num_edges: int) -> None:
        self.owner = owner
        self.parts = parts
        self.num_edges = num_edges
        self.identity = fingerprint(owner)
        """Identifies the graph and its partition."""
        self.cut_edges = 0
        """Edges whose ends are in different parts."""

    @abstractmethod
    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return [e] each: integer sources and destinations, and ascending int64 numbers of the edges."""

    @abstractmethod
    def halo(self, rank: int) -> Tensor:
        """Return [h], int64: nodes of other parts that a part has edges from, by owner and number."""

    def part(self, rank: int) -> Part:
        """The part of one process."""
        source, target, numbers = self.edges(rank)
        halo = self.halo(rank)
        remote = self.owner[source] != rank
        boundary = torch.zeros(len(self.owner), dtype=torch.bool, device="cpu")
        boundary[target[remote]] = True
        owned = (self.owner == rank).nonzero().squeeze(1)
        owned = torch.cat([owned[~boundary[owned]], owned[boundary[owned]]])
        sent, cut_rows = [], 0
        for receiver in range(self.parts):
            nodes = self.halo(receiver)
            sent.append(nodes[self.owner[nodes] == rank])
            cut_rows += len(nodes)
        number = torch.full((len(self.owner),), -1, dtype=torch.int32, device="cpu")
        number[owned] = torch.arange(len(owned), dtype=torch.int32, device="cpu")
        send_rows = number[torch.cat(sent)].long()
        number[halo] = torch.arange(len(owned), len(owned) + len(halo), dtype=torch.int32, device="cpu")
        return Part(
            rank=rank,
            parts=self.parts,
            num_nodes=len(self.owner),
            num_edges=self.num_edges,
            cut_edges=self.cut_edges,
            cut_rows=cut_rows,
            identity=self.identity,
            inner_rows=len(owned) - int(boundary[owned].sum()),
            owned_nodes=owned,
            halo_nodes=halo,
            halo_counts=torch.bincount(self.owner[halo], minlength=self.parts),
            send_rows=send_rows,
            send_counts=torch.tensor([len(nodes) for nodes in sent], device="cpu"),
            source=number[source],
            target=number[target],
            edge_numbers=numbers,
        )


class ListDivision(Division):
    """The division of a graph whose list of edges is in memory.

    Args:
        edge_index: [2, E], int32 or int64.
        owner: [N], int32, the part of every node.
        parts: Number of parts.
    """

    def __init__(self, edge_index: Tensor, owner: Tensor, parts: int) -> None:
        super().__init__(owner, parts, edge_index.size(1))
        self.identity = fingerprint(edge_index, owner)
        self._source, self._target = edge_index[0].long(), edge_index[1].long()
        self._of_target = owner[self._target]
        of_source = owner[self._source]
        crossing = of_source != self._of_target
        self.cut_edges = int(crossing.sum())
        # (receiver, owner, node) in ascending order.
        nodes = max(len(owner), 1)
        receiver = self._of_target[crossing].long()
        key = ((receiver * parts + of_source[crossing]) * nodes + self._source[crossing]).unique()
        counts = torch.bincount(key.div(parts * nodes, rounding_mode="floor"), minlength=parts)
        self._halos = (key % nodes).split(counts.tolist())

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """The edges of a part; see :meth:`Division.edges`."""
        mine = (self._of_target == rank).nonzero().squeeze(1)
        return self._source[mine], self._target[mine], mine

    def halo(self, rank: int) -> Tensor:
        """The halo of a part; see :meth:`Division.halo`."""
        found: Tensor = self._halos[rank]
        return found
