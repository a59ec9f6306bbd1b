"""One process's part of a graph: its rows, the edges that end there, and the rows it sends and receives."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a graph, with its own node numbers: owned rows first, then halo rows.

    Attributes:
        rank: Number of the part.
        parts: Number of parts.
        num_nodes: Number of nodes in the whole graph.
        num_edges: Number of edges in the whole graph.
        cut_edges: Number of edges of the whole graph whose ends are in different parts.
        cut_rows: Rows that all parts together receive in one exchange: pairs of a node and another part that
            has an edge from the node. One exchange of width F moves ``cut_rows * F`` numbers.
        identity: Identifies the graph and its partition.
        inner_rows: Number of owned rows without halo sources; these come first.
        owned_nodes: [n], int32, the graph's numbers of the owned rows.
        halo_nodes: [h], int32, the graph's numbers of the rows that are received, sorted by owner and number.
        halo_counts: [parts], int64, number of halo rows that each part owns.
        send_rows: [s], int32, the owned rows that are sent, sorted by receiver and number.
        send_counts: [parts], int64, number of rows that each part receives.
        rowptr: [n + 1], int64: the edges that end in owned row i are ``rowptr[i]`` to ``rowptr[i + 1] - 1``.
        source: [e], int32, for every edge that ends here, sorted by row: an owned row, or the number of owned
            rows plus a halo row.
        edge_numbers: [e], the graph's numbers of these edges, ascending in each row; see :func:`edge_kind`.
        sources: The source nodes, if edges start at other nodes than the nodes in which they end. Then nodes
            and rows here are destinations, except for halos and rows that are sent. None means that sources
            and destinations are the same nodes.
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
    rowptr: Tensor
    source: Tensor
    edge_numbers: Tensor
    sources: "Sources | None" = None

    @property
    def num_sources(self) -> int:
        """Number of owned source rows."""
        return len(self.owned_nodes if self.sources is None else self.sources.owned_nodes)

    @property
    def target(self) -> Tensor:
        """Return [e], int32: the owned row in which each edge ends. A new tensor."""
        rows = torch.arange(len(self.owned_nodes), dtype=torch.int32, device=self.rowptr.device)
        return rows.repeat_interleave(self.rowptr.diff())

    def to(self, device: torch.device) -> "Part":
        """Return the part with its tensors on a device; returns itself if they are there already."""
        if self.source.device == device:
            return self
        moved = dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in ARRAYS})
        if self.sources is None:
            return moved
        sources = dataclasses.replace(self.sources, owned_nodes=self.sources.owned_nodes.to(device))
        return dataclasses.replace(moved, sources=sources)


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of one part of a bipartite graph.

    ``num_nodes`` is the number of sources in the whole graph; ``owned_nodes``, [m] of int32, are the graph's
    numbers of the owned sources.
    """

    num_nodes: int
    owned_nodes: Tensor


ARRAYS = (
    "owned_nodes",
    "halo_nodes",
    "halo_counts",
    "send_rows",
    "send_counts",
    "rowptr",
    "source",
    "edge_numbers",
)
"""Names of a part's tensors."""


def edge_kind(num_edges: int) -> torch.dtype:
    """Return the dtype of edge numbers: int32 if they fit, else int64."""
    return torch.int32 if num_edges <= torch.iinfo(torch.int32).max else torch.int64
