"""Rows of any nodes of a divided graph, whichever process owns them; for link prediction and pooling.

No rank knows the owners of all nodes. Each rank stores the owners of equally many consecutive node numbers,
its share of a directory. A request first goes to the directory, and then to the owners.
"""

import dataclasses

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.agreement import gathered, together
from onehop.distributed.checks import check_part, check_rows
from onehop.distributed.exchange import Exchange, Traffic
from onehop.distributed.graph import DistributedGraph
from onehop.distributed.members import telling
from onehop.distributed.numbering import grouped
from onehop.errors import ArgumentError


class RowRequest:
    """A request for the rows of some nodes; it is prepared once and can be used for any number of tensors.

    All ranks must make their requests together, each for its own nodes; a rank may request no nodes.

    Args:
        graph: This process's part.
        nodes: [k], int32 or int64, the graph's numbers of any nodes, in any order; repeats are allowed.

    Raises:
        ArgumentError: A rank's ``nodes`` are not numbers of the graph's nodes.
        CommunicationError: Another process ended or did not answer.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedGraph, RowRequest
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = DistributedGraph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> x = torch.tensor([[1.0], [10.0], [5.0]])[graph.owned_nodes]
        >>> RowRequest(graph, torch.tensor([2, 0, 2])).rows(x)  # rows of nodes that any process owns
        tensor([[5.],
                [1.],
                [5.]])
        >>> dist.destroy_process_group()
    """

    def __init__(self, graph: DistributedGraph, nodes: Tensor) -> None:
        check_part(graph)
        group, part = graph.exchange.group, graph.part
        distinct, position = together("RowRequest", lambda: _checked(graph, nodes), group).unique(
            return_inverse=True
        )
        entries = graph.derived("directory", lambda: _directory(graph))
        step = _step(graph)
        asked = _swapped(graph, _by_rank(distinct // step, distinct, part.parts))
        answers = _swapped(graph, [entries.index_select(0, each - part.rank * step) for each in asked])
        owner, row = torch.cat(answers).unbind(1)
        bounds, order = grouped(owner.int(), part.parts)
        # This rank's own rows are not sent, and precede the other rows, which are ordered by owner.
        begin, end = int(bounds[part.rank]), int(bounds[part.rank + 1])
        asked_rows = [row[each.long()] for each in order.split(bounds.diff().tolist())]
        place = torch.empty_like(row)
        order = torch.cat([order[begin:end], order[:begin], order[end:]]).long()
        place[order] = torch.arange(len(row), device=row.device)
        self._place = place.index_select(0, position).to(graph.device)
        self._own_rows = asked_rows[part.rank].to(graph.device)
        asked_rows[part.rank] = row[:0]
        sent_rows = _swapped(graph, asked_rows)
        way = dataclasses.replace(
            part,
            send_rows=torch.cat(sent_rows).to(graph.device),
            send_counts=torch.tensor([len(each) for each in sent_rows], device="cpu"),
            halo_counts=torch.tensor([len(each) for each in asked_rows], device="cpu"),
        )
        self._graph = graph
        self._exchange = Exchange(way, group)

    @property
    def traffic(self) -> Traffic:
        """Rows, and gradients of rows, that this process has sent and received for this request."""
        return self._exchange.traffic

    def rows(self, x: Tensor) -> Tensor:
        """Return [k, ...]: the nodes' rows of a tensor [n, ...] that is divided in the same way as the graph.

        Differentiable: gradients return to the owners. All ranks must call it together.

        Args:
            x: A row for each of ``graph.owned_nodes``.

        Raises:
            ArgumentError: A shape or dtype does not fit.
            CommunicationError: Another process ended or did not answer.
        """
        check_rows("x", x, self._graph)
        flat = x.flatten(1)
        local = flat.index_select(0, self._own_rows)
        out = torch.cat([local, self._exchange.values(flat)]).index_select(0, self._place)
        return out.reshape(len(out), *x.shape[1:])


def _checked(graph: DistributedGraph, nodes: Tensor) -> Tensor:
    count = graph.part.num_nodes
    if not isinstance(nodes, Tensor) or nodes.dim() != 1 or nodes.dtype not in (torch.int32, torch.int64):
        raise ArgumentError("nodes: expected a tensor [k], int32 or int64, of the graph's numbers of nodes.")
    if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < count:
        raise ArgumentError(
            f"nodes: expected numbers in [0, {count}), the nodes of the whole graph, got {int(nodes.min())} "
            f"to {int(nodes.max())}."
        )
    return nodes.long().cpu()


def _step(graph: DistributedGraph) -> int:
    """Return the number of nodes in each rank's share of the directory."""
    return max(-(-graph.part.num_nodes // graph.part.parts), 1)


def _directory(graph: DistributedGraph) -> Tensor:
    """Return [step, 2], int64: owner and row of each node in this rank's share."""
    part, step = graph.part, _step(graph)
    nodes = graph.owned_nodes.cpu()
    entries = torch.stack([nodes, torch.arange(len(nodes), device="cpu")], 1)
    received = _swapped(graph, _by_rank(nodes // step, entries, part.parts))
    directory = torch.empty(step, 2, dtype=torch.int64, device="cpu")
    for rank, pairs in enumerate(received):
        place = pairs[:, 0] - part.rank * step
        directory[place, 0] = rank
        directory[place, 1] = pairs[:, 1]
    return directory


def _by_rank(rank: Tensor, values: Tensor, parts: int) -> list[Tensor]:
    bounds, order = grouped(rank.int(), parts)
    return list(values.index_select(0, order).split(bounds.diff().tolist()))


def _swapped(graph: DistributedGraph, outgoing: list[Tensor]) -> list[Tensor]:
    """Return what each rank has for this one: int64 tensors whose shapes differ only in their lengths."""
    group, here = graph.exchange.group, graph.part.rank
    counts = gathered("requesting rows", [len(each) for each in outgoing], group)
    incoming = [outgoing[0].new_empty(sent[here], *outgoing[0].shape[1:]) for sent in counts]
    incoming[here] = outgoing[here]
    operations = [
        dist.P2POp(
            kind, message.contiguous() if kind is dist.isend else message, group=group, group_peer=peer
        )
        for kind, messages in ((dist.irecv, incoming), (dist.isend, outgoing))
        for peer, message in enumerate(messages)
        if peer != here and message.numel()
    ]
    with telling("requesting rows"):
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
    return incoming
