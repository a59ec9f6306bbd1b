"""What one process has of a partitioned graph: its rows, their edges, and what it sends and receives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a graph, with node numbers of its own: owned rows first, then halo rows.

    Attributes:
        rank: Which part.
        parts: How many there are.
        num_nodes: Nodes of the whole graph.
        num_edges: Edges of the whole graph.
        cut_edges: Edges of the whole graph whose ends are in different parts.
        cut_rows: Rows that all parts together receive in one exchange: pairs of a node and another part that
            has an edge from it. One exchange of width F moves ``cut_rows * F`` numbers.
        identity: Tells different graphs, and different partitions of one graph, apart.
        inner_rows: So many of the owned rows, the first ones, have owned sources alone.
        owned_nodes: [n], int64, the graph's numbers of the owned rows.
        halo_nodes: [h], int64, the graph's numbers of the rows that are received, by owner and number.
        halo_counts: [parts], int64, how many of them each part owns.
        send_rows: [s], int64, the owned rows that are sent, by receiver and number.
        send_counts: [parts], int64, how many each part receives.
        source: [e], int32, of every edge that ends here: an owned row, or n + a halo row.
        target: [e], int32, an owned row.
        edge_numbers: [e], int64, ascending, the graph's numbers of these edges.
    """

    rank: int
    parts: int
    num_nodes: int
    num_edges: int
    cut_edges: int
    cut_rows: int
    identity: int
    inner_rows: int
    owned_nodes: Tensor
    halo_nodes: Tensor
    halo_counts: Tensor
    send_rows: Tensor
    send_counts: Tensor
    source: Tensor
    target: Tensor
    edge_numbers: Tensor


ARRAYS = (
    "owned_nodes",
    "halo_nodes",
    "halo_counts",
    "send_rows",
    "send_counts",
    "source",
    "target",
    "edge_numbers",
)
"""The names of a part's tensors."""


class Division:
    """A whole graph divided into parts, which are cut out one by one.

    Args:
        edge_index: [2, E], int32 or int64.
        owner: [N], int32, the part of every node.
        parts: How many parts there are.
        identity: Of the graph and its partition.
    """

    def __init__(self, edge_index: Tensor, owner: Tensor, parts: int, identity: int) -> None:
        self._source, self._target = edge_index[0].long(), edge_index[1].long()
        self._owner = owner.long()
        self._parts = parts
        self._identity = identity
        self._of_source, self._of_target = self._owner[self._source], self._owner[self._target]
        crossing = self._of_source != self._of_target
        self._cut_edges = int(crossing.sum())
        # (receiver, owner, node) in ascending order; both ends of an exchange read it in this order.
        nodes = len(owner)
        key = (self._of_target[crossing] * parts + self._of_source[crossing]) * nodes + self._source[crossing]
        key = key.unique()
        self._sent_node = key % max(nodes, 1)
        ends = key.div(max(nodes, 1), rounding_mode="floor")
        self._receiver, self._sender = ends.div(parts, rounding_mode="floor"), ends % parts

    def part(self, rank: int) -> Part:
        """The part of one process."""
        mine = (self._of_target == rank).nonzero().squeeze(1)
        source, target = self._source[mine], self._target[mine]
        remote = self._owner[source] != rank
        boundary = torch.zeros(len(self._owner), dtype=torch.bool)
        boundary[target[remote]] = True
        owned = (self._owner == rank).nonzero().squeeze(1)
        owned = torch.cat([owned[~boundary[owned]], owned[boundary[owned]]])
        received, sent = self._receiver == rank, self._sender == rank
        halo = self._sent_node[received]
        number = torch.full((len(self._owner),), -1, dtype=torch.int64)
        number[owned] = torch.arange(len(owned))
        send_rows = number[self._sent_node[sent]]
        number[halo] = torch.arange(len(halo)) + len(owned)
        return Part(
            rank=rank,
            parts=self._parts,
            num_nodes=len(self._owner),
            num_edges=len(self._source),
            cut_edges=self._cut_edges,
            cut_rows=len(self._sent_node),
            identity=self._identity,
            inner_rows=len(owned) - int(boundary[owned].sum()),
            owned_nodes=owned,
            halo_nodes=halo,
            halo_counts=torch.bincount(self._sender[received], minlength=self._parts),
            send_rows=send_rows,
            send_counts=torch.bincount(self._receiver[sent], minlength=self._parts),
            source=number[source].int(),
            target=number[target].int(),
            edge_numbers=mine,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """The edges of a part in two graphs: the first needs nothing from other processes.

    Attributes:
        first: Owned rows as sources.
        second: The rest.
        of_first: [.], int64, the places of the first graph's edges among the part's.
        of_second: Likewise.
    """

    first: Graph
    second: Graph
    of_first: Tensor
    of_second: Tensor


def split_by_source(source: Tensor, target: Tensor, rows: int, halo: int) -> Split:
    """Edges from owned rows, and edges from halo rows; both graphs have all rows."""
    remote = source >= rows
    inner, outer = (~remote).nonzero().squeeze(1), remote.nonzero().squeeze(1)
    return Split(
        Graph.from_edge_index(torch.stack([source[inner], target[inner]]), size=(rows, rows)),
        Graph.from_edge_index(torch.stack([source[outer] - rows, target[outer]]), size=(halo, rows)),
        inner,
        outer,
    )


def split_by_row(source: Tensor, target: Tensor, rows: int, halo: int, inner_rows: int) -> Split:
    """Edges of rows whose sources are all owned, and edges of the other rows, from all sources."""
    boundary = target >= inner_rows
    inner, outer = (~boundary).nonzero().squeeze(1), boundary.nonzero().squeeze(1)
    return Split(
        Graph.from_edge_index(torch.stack([source[inner], target[inner]]), size=(rows, inner_rows)),
        Graph.from_edge_index(
            torch.stack([source[outer], target[outer] - inner_rows]), size=(rows + halo, rows - inner_rows)
        ),
        inner,
        outer,
    )
