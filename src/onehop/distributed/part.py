"""One process's part of a graph: its rows, their edges, and the rows that it sends and receives."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a graph, with node numbers of its own: owned rows first, then halo rows.

    Attributes:
        rank: Number of the part.
        parts: Number of parts.
        num_nodes: Nodes of the whole graph.
        num_edges: Edges of the whole graph.
        cut_edges: Edges of the whole graph whose ends are in different parts.
        cut_rows: Rows that all parts together receive in one exchange: pairs of a node and another part that
            has an edge from it. One exchange of width F moves ``cut_rows * F`` numbers.
        identity: Identifies the graph and its partition.
        inner_rows: Number of owned rows without halo sources; these come first.
        owned_nodes: [n], int64, the graph's numbers of the owned rows.
        halo_nodes: [h], int64, the graph's numbers of the rows that are received, by owner and number.
        halo_counts: [parts], int64, number of halo rows that each part owns.
        send_rows: [s], int64, the owned rows that are sent, by receiver and number.
        send_counts: [parts], int64, number of rows that each part receives.
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

    def to(self, device: torch.device) -> "Part":
        """The part with its tensors on a device; itself if they are there already."""
        if self.source.device == device:
            return self
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in ARRAYS})


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


@dataclass(frozen=True, slots=True)
class EdgeSplit:
    """The edges of a part in two graphs: the first needs nothing from other processes.

    Attributes:
        first: Owned rows as sources.
        second: The rest.
        of_first: [.], int64, the positions of the first graph's edges among the part's.
        of_second: Likewise.
    """

    first: Graph
    second: Graph
    of_first: Tensor
    of_second: Tensor


def split_by_source(source: Tensor, target: Tensor, rows: int, halo: int) -> EdgeSplit:
    """Edges from owned rows, and edges from halo rows; both graphs have all rows."""
    remote = source >= rows
    inner, outer = (~remote).nonzero().squeeze(1), remote.nonzero().squeeze(1)
    return EdgeSplit(
        Graph.from_edge_index(torch.stack([source[inner], target[inner]]), size=(rows, rows)),
        Graph.from_edge_index(torch.stack([source[outer] - rows, target[outer]]), size=(halo, rows)),
        inner,
        outer,
    )


def split_by_row(source: Tensor, target: Tensor, rows: int, halo: int, inner_rows: int) -> EdgeSplit:
    """Edges of rows whose sources are all owned, and edges of the other rows, from all sources."""
    boundary = target >= inner_rows
    inner, outer = (~boundary).nonzero().squeeze(1), boundary.nonzero().squeeze(1)
    return EdgeSplit(
        Graph.from_edge_index(torch.stack([source[inner], target[inner]]), size=(rows, inner_rows)),
        Graph.from_edge_index(
            torch.stack([source[outer], target[outer] - inner_rows]), size=(rows + halo, rows - inner_rows)
        ),
        inner,
        outer,
    )
