"""Features of any nodes of a divided graph, for mini-batches: own rows, cached rows and fetched rows."""

import torch
from torch import Tensor

from onehop import native
from onehop.distributed.checks import check_part, check_rows
from onehop.distributed.exchange import Traffic
from onehop.distributed.graph import DistributedGraph
from onehop.distributed.requests import RowRequest
from onehop.errors import ArgumentError, integer


class RemoteRows:
    """The features of all nodes for :func:`onehop.loader`; this process holds the rows that it owns.

    The rows of a batch that other processes own are fetched in one message from each of them. Rows of the
    nodes at which most edges of this part start are fetched once and kept. All ranks must make equally many
    requests, so they need equally many batches.

    Args:
        graph: This process's part, with its own process group, ``group=torch.distributed.new_group()``,
            because rows travel while a training step adds up gradients in the default group.
        x: [n, ...]: a row for each of ``graph.owned_nodes``, on the CPU.
        kept_rows: Maximum number of rows of other processes that are kept.

    Raises:
        ArgumentError: An argument is not as described.
        CommunicationError: Another process ended or did not answer.

    Attributes:
        kept_nodes: [k], int64, ascending: the nodes whose rows are kept.
        traffic: Rows that this process has sent and received since this object was created, without the kept
            rows.
        hits: Number of requested rows of other processes that were found among the kept rows.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedGraph, RemoteRows
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> edges = torch.tensor([[0, 0, 1], [1, 2, 2]])
        >>> graph = DistributedGraph.from_edge_index(edges, group=dist.new_group())
        >>> x = RemoteRows(graph, torch.tensor([[1.0], [10.0], [5.0]])[graph.owned_nodes])
        >>> x.rows(torch.tensor([2, 0]))  # as onehop.loader(features={"x": x}) does for every batch
        tensor([[5.],
                [1.]])
        >>> dist.destroy_process_group()
    """

    in_order = True

    def __init__(self, graph: DistributedGraph, x: Tensor, *, kept_rows: int = 0) -> None:
        check_part(graph)
        check_rows("x", x, graph)
        if graph.is_bipartite:
            raise ArgumentError("graph: expected one whose sources and destinations are the same nodes.")
        if graph.exchange.group is None:
            raise ArgumentError(
                "graph: expected one with a process group of its own, for rows are fetched while gradients "
                "are added up; open it with group=torch.distributed.new_group()."
            )
        kept_rows = integer("kept_rows", kept_rows)
        if not x.is_cpu:
            raise ArgumentError(f"x: expected a tensor on the CPU, got one on {x.device}.")
        self._graph, self._x = graph, x.detach()
        self.kept_nodes = _hot(graph, kept_rows)
        self._kept_rows = RowRequest(graph, self.kept_nodes).rows(self._x)
        # Numbers of all rows on this process, ascending, and the position of each: own rows, then kept rows.
        self._here, self._place = torch.cat([graph.owned_nodes, self.kept_nodes]).sort()
        self.traffic, self.hits = Traffic(), 0

    def __len__(self) -> int:
        """Return the number of nodes in the whole graph."""
        return self._graph.part.num_nodes

    def rows(self, numbers: Tensor) -> Tensor:
        """Return [k, ...]: the rows of these nodes. All ranks must call it together, each for its own nodes.

        Args:
            numbers: [k], int64: the graph's numbers of any nodes.

        Raises:
            ArgumentError: The nodes of a rank are not numbers of the graph's nodes.
            CommunicationError: Another process ended or did not answer.
        """
        place = self._places(numbers)
        elsewhere = (place < 0).nonzero().view(-1)
        request = RowRequest(self._graph, numbers[elsewhere])
        fetched = request.rows(self._x)
        owned = len(self._x)
        out = native.empty((len(numbers), *self._x.shape[1:]), self._x.dtype)
        is_kept = place >= owned
        here = ((place >= 0) & ~is_kept).nonzero().view(-1)
        from_kept = is_kept.nonzero().view(-1)
        out[here] = self._x.index_select(0, place[here])
        out[from_kept] = self._kept_rows.index_select(0, place[from_kept] - owned)
        out[elsewhere] = fetched
        self.hits += len(from_kept)
        self.traffic += request.traffic
        return out

    def _places(self, numbers: Tensor) -> Tensor:
        """Return [k], int64: the positions of the rows on this process; -1 for rows that are elsewhere."""
        if not len(self._here):
            return torch.full_like(numbers, -1)
        at = torch.searchsorted(self._here, numbers).clamp_(max=len(self._here) - 1)
        return torch.where(self._here[at] == numbers, self._place[at], -1)


def _hot(graph: DistributedGraph, most: int) -> Tensor:
    """Return [k], int64, ascending: the nodes of other processes at which most edges of this part start."""
    part = graph.part
    source = part.source.cpu()
    edges = torch.bincount(source[source >= graph.num_nodes] - graph.num_nodes, minlength=graph.num_halo)
    # Smaller numbers win ties.
    order = edges.argsort(descending=True, stable=True)[:most]
    return part.halo_nodes.cpu()[order].long().sort().values
