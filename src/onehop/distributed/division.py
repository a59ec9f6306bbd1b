"""Division of a whole graph into parts, which are extracted one by one."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.numbering import Numbering, grouped, inner_first
from onehop.distributed.part import Part, Sources, edge_kind
from onehop.graph import Graph
from onehop.graph.contents import fingerprint as contents_of
from onehop.storage import write_all, writing


def fingerprint(*tensors: Tensor) -> int:
    """Return a hash of contents and shapes in [0, 2^63), the same in every process."""
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.contiguous()
        digest.update(f"{tuple(plain.shape)} {plain.dtype} {contents_of(plain)};".encode())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


@dataclass(frozen=True, slots=True)
class Halos:
    """The halo nodes of all parts, in memory or memory-mapped.

    Attributes:
        nodes: [h], int32, sorted by receiver, owner and number.
        bounds: [parts * parts + 1], int64: the nodes that part r receives from part o are
            ``nodes[bounds[r * parts + o]:bounds[r * parts + o + 1]]``.
        parts: Number of parts.
    """

    nodes: np.ndarray
    bounds: np.ndarray
    parts: int

    @classmethod
    def collected(cls, halos: Iterable[tuple[np.ndarray, np.ndarray]], file: Path | None) -> "Halos":
        """Collect the halos of parts that come one after the other, in memory or, if given, in ``file``.

        For each receiver, ``halos`` has its halo, int32, sorted by owner and number, and how many of these
        nodes each part owns, [parts].

        Raises:
            StorageError: The disk is full.
        """
        counts = []
        pieces = []
        with nullcontext() if file is None else _opened(file) as stream:
            for nodes, owned in halos:
                counts.append(owned)
                if stream is None or file is None:
                    pieces.append(nodes)
                else:
                    with writing("folder", file, nodes.nbytes):
                        write_all(stream, np.ascontiguousarray(nodes).data)
        bounds = np.concatenate([[0], *counts]).cumsum()
        if file is None or bounds[-1] == 0:  # an empty file cannot be mapped
            nodes = np.concatenate([np.empty(0, np.int32), *pieces])
        else:
            nodes = np.memmap(file, np.int32, "r")
        return cls(nodes, bounds, len(counts))

    @property
    def rows(self) -> int:
        """Number of rows that all parts together receive."""
        return len(self.nodes)

    def received(self, rank: int) -> Tensor:
        """Return [h], int32: the halo of a part, sorted by owner and number."""
        return self._read(rank * self.parts, (rank + 1) * self.parts)

    def received_counts(self, rank: int) -> Tensor:
        """Return [parts], int64: how many nodes of this halo each part owns."""
        return torch.from_numpy(np.diff(self.bounds[rank * self.parts : (rank + 1) * self.parts + 1]))

    def sent(self, rank: int) -> list[Tensor]:
        """Return, for each receiver, [.], int32: the nodes of a part that it receives, by number."""
        return [self._read(at, at + 1) for at in range(rank, self.parts**2, self.parts)]

    def _read(self, first: int, last: int) -> Tensor:
        return torch.from_numpy(np.array(self.nodes[self.bounds[first] : self.bounds[last]]))


def _opened(file: Path) -> FileIO:
    with writing("folder", file):
        return file.open("wb", buffering=0)


class Division(ABC):
    """A partitioned graph: gives the edges that end in each part, and the rows that the parts exchange.

    Args:
        owner: [N], int32, the part of every node; for a bipartite graph, of every destination.
        parts: Number of parts.
        num_edges: Number of edges in the whole graph.
        identity: Identifies the graph and its partition.
        halo_file: Where to store the rows that the parts receive; None means in memory.
        source_owner: [M], int32, the part of every source of a bipartite graph; None means ``owner``.
    """

    def __init__(
        self,
        owner: Tensor,
        parts: int,
        num_edges: int,
        identity: int,
        halo_file: Path | None = None,
        source_owner: Tensor | None = None,
    ) -> None:
        self.owner = owner
        self.source_owner = owner if source_owner is None else source_owner
        self.parts = parts
        self.num_edges = num_edges
        self.identity = identity
        self.cut_edges = 0
        """Number of edges whose ends are in different parts."""
        self.boundary = torch.zeros(len(owner), dtype=torch.bool, device="cpu")
        """[N]: whether each node has sources in other parts."""
        self._halos = Halos.collected(self._received(), halo_file)
        self.rows = inner_first(owner, self.boundary, parts)
        self.source_rows = self.rows if source_owner is None else inner_first(source_owner, 0, parts)

    def number(self, rows: Numbering, source_rows: Numbering) -> None:
        """Set the numbers of nodes, for a graph that shares its nodes with other graphs.

        In the numbering of destinations, each part's nodes without sources in other parts come first. The
        numbering of sources is the same object if sources and destinations are the same nodes.
        """
        self.rows, self.source_rows = rows, source_rows

    @abstractmethod
    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return [e] each: int32 sources and destinations, and ascending int64 numbers of the edges."""

    @property
    def cut_rows(self) -> int:
        """Number of rows that all parts together receive in one exchange."""
        return self._halos.rows

    def owned(self, rank: int) -> Tensor:
        """Return [n], int32: the nodes of a part; nodes without sources in other parts come first."""
        return self.rows.owned(rank)

    def kinds(self, first: int, last: int) -> np.ndarray:
        """Return 2 * part for nodes ``first`` to ``last`` - 1, plus 1 for nodes with sources in other parts.

        The result has the narrowest dtype, because NumPy sorts it in one pass.
        """
        owner, boundary = self.owner[first:last].numpy(), self.boundary[first:last].numpy()
        kinds: np.ndarray = owner.astype(np.min_scalar_type(2 * self.parts)) * 2 + boundary
        return kinds

    def part(self, rank: int) -> Part:
        """Return the part of one process."""
        source, target, numbers = self.edges(rank)
        owned, halo, sent = self.owned(rank), self._halos.received(rank), self._halos.sent(rank)
        sources = None
        if self.source_rows is not self.rows:
            sources = Sources(len(self.source_owner), self.source_rows.owned(rank))
        first = len(owned if sources is None else sources.owned_nodes)
        local = self.source_rows.local
        send_rows = local.index_select(0, torch.cat(sent))
        # For the sources of this part only, the halo nodes have numbers here as well.
        elsewhere = local.index_select(0, halo)
        local[halo] = torch.arange(first, first + len(halo), dtype=torch.int32, device="cpu")
        local_source = local.index_select(0, source)
        local[halo] = elsewhere
        # One native pass sorts the edges by row, and keeps their order within each row.
        by_row = Graph.from_edge_index(
            torch.stack([local_source, self.rows.local.index_select(0, target)]),
            size=(first + len(halo), len(owned)),
        )
        numbers = numbers.to(edge_kind(self.num_edges))
        return Part(
            rank=rank,
            parts=self.parts,
            num_nodes=len(self.owner),
            num_edges=self.num_edges,
            cut_edges=self.cut_edges,
            cut_rows=self.cut_rows,
            identity=self.identity,
            inner_rows=self.rows.inner_rows(rank),
            owned_nodes=owned,
            halo_nodes=halo,
            halo_counts=self._halos.received_counts(rank),
            send_rows=send_rows,
            send_counts=torch.tensor([len(nodes) for nodes in sent], device="cpu"),
            rowptr=by_row.rowptr.clone(),
            source=by_row.col.clone(),
            edge_numbers=numbers if by_row.perm is None else numbers.index_select(0, by_row.perm),
            sources=sources,
        )

    def _received(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield each part's halo and its owners; record which nodes have sources in other parts."""
        bounds, by_owner = grouped(self.source_owner, self.parts)
        # Positions in this order ascend by owner and number.
        place = torch.empty_like(by_owner)
        place[by_owner] = torch.arange(len(by_owner), dtype=torch.int32, device="cpu")
        # Marks are several times faster than sorting or NumPy's hashing.
        is_sent = torch.zeros(len(by_owner), dtype=torch.bool, device="cpu")
        for rank in range(self.parts):
            source, target, _ = self.edges(rank)
            remote = self.source_owner.index_select(0, source) != rank
            self.boundary[target[remote]] = True
            is_sent[place.index_select(0, source[remote])] = True
            places = np.flatnonzero(is_sent.numpy())
            is_sent[places] = False
            self.cut_edges += int(remote.sum())
            yield by_owner.numpy()[places], np.diff(np.searchsorted(places, bounds.numpy()))


class ListDivision(Division):
    """The division of a graph whose list of edges, [2, E] of int32 or int64, is in memory.

    The owners are the same as for :class:`Division`.
    """

    def __init__(
        self, edge_index: Tensor, owner: Tensor, parts: int, source_owner: Tensor | None = None
    ) -> None:
        self._target = edge_index[1]
        of_target = owner.index_select(0, self._target)
        # Group the edges by the part in which they end: one native pass, as rows of a graph.
        self._by_part = Graph.from_edge_index(
            torch.stack([edge_index[0].int(), of_target]),
            size=(len(owner if source_owner is None else source_owner), parts),
        )
        owners = (owner,) if source_owner is None else (owner, source_owner)
        identity = fingerprint(edge_index, *owners)
        super().__init__(owner, parts, edge_index.size(1), identity, source_owner=source_owner)

    def edges(self, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of a part; see :meth:`Division.edges`."""
        begin, end = self._by_part.rowptr[rank : rank + 2].tolist()
        perm = self._by_part.perm
        numbers = torch.arange(begin, end, device="cpu") if perm is None else perm[begin:end].long()
        return self._by_part.col[begin:end], self._target.index_select(0, numbers).int(), numbers
