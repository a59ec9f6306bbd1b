"""Exchange of halo rows, overlapped with computation; gradients return the same way.

``begin`` posts the messages and returns at once; ``end`` waits for them. The backward pass reverses this: the
gradient of ``end`` posts, and the gradient of ``begin`` waits. Autograd runs the gradients of the computation
that was recorded between the two also between their gradients.
"""

from dataclasses import astuple, dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from onehop.distributed.members import telling
from onehop.distributed.part import Part
from onehop.errors import check_choice

_WIDE = (torch.float32, torch.float64)
# All messages of one exchange have the same tag; torch's backends accept small tags only.
_TAGS = 1 << 15


@dataclass(frozen=True, slots=True)
class Traffic:
    """Amount of data that one process has sent and received.

    Attributes:
        sent_bytes: Bytes of rows, and of gradients of rows, that left this process.
        received_bytes: Bytes that arrived.
        exchanges: Number of exchanges.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop import distributed
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = distributed.DistributedGraph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> out = distributed.aggregate(graph, torch.ones(3, 2))
        >>> graph.traffic  # nothing is sent by one process alone
        Traffic(sent_bytes=0, received_bytes=0, exchanges=1)
        >>> dist.destroy_process_group()
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    exchanges: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(sum(pair) for pair in zip(astuple(self), astuple(other), strict=True)))


class Messages:
    """Messages in transit."""

    def __init__(self, works: list[Any], received: Tensor, sent: Tensor, peers: list[int]) -> None:
        self._works = works
        self._received = received
        self._sent = sent  # a send buffer must live until it is sent
        self._peers = peers

    def wait(self) -> Tensor:
        """Wait for the messages and return the received rows; raise a CommunicationError if that fails."""
        works, self._works = self._works, []
        with telling(f"exchanging rows with ranks {self._peers}"):
            for work in works:
                work.wait()
        return self._received


class Exchange:
    """Sends owned rows of a part to the processes in ``group`` that have edges from them; None means all."""

    def __init__(self, part: Part, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.traffic = Traffic()
        self.kind: type[PendingExchange] = PendingExchange
        """The class of exchanges; with :class:`Rounded`, exchanges are not exact."""
        self._send_rows = part.send_rows
        self._send_counts = part.send_counts.tolist()
        self._halo_counts = part.halo_counts.tolist()
        self._number = 0

    def begin(self, x: Tensor) -> "PendingExchange":
        """Post the rows of ``x``, [n, F], that other processes need."""
        pending = self.kind(self)
        pending.token = _Begin.apply(x, pending)  # type: ignore[no-untyped-call]
        return pending

    def values(self, x: Tensor) -> Tensor:
        """Return [h, F]: the halo's rows of ``x``, [n, F], without overlapping computation."""
        return self.begin(x).end()

    def forwards(self, x: Tensor) -> Messages:
        """Send owned rows to the processes that need them."""
        return self._post(x.index_select(0, self._send_rows), self._send_counts, self._halo_counts)

    def backwards(self, grad: Tensor) -> Messages:
        """Send gradients of halo rows to their owners."""
        return self._post(grad.contiguous(), self._halo_counts, self._send_counts)

    def added(self, x_like: tuple[int, ...], grads: Tensor) -> Tensor:
        """Add the returned gradients to each owned row, in the order of the ranks."""
        total = grads.new_zeros(x_like)
        rows = self._send_rows.split(self._send_counts)
        # A process lists each row once, so every addition goes to a different row.
        for each, part in zip(rows, grads.split(self._send_counts), strict=True):
            total.index_add_(0, each, part)
        return total

    def _post(self, out: Tensor, out_counts: list[int], in_counts: list[int]) -> Messages:
        received = out.new_empty((sum(in_counts), out.size(1)))
        self._number = (self._number + 1) % _TAGS
        operations = []
        peers = set()
        # Rows are sent as bytes, because not every backend supports every dtype.
        incoming = received.view(torch.uint8).split(in_counts)
        outgoing = out.view(torch.uint8).split(out_counts)
        for kind, messages in ((dist.irecv, incoming), (dist.isend, outgoing)):
            for peer, message in enumerate(messages):
                if message.numel():
                    peers.add(peer)
                    operations.append(
                        dist.P2POp(kind, message, group=self.group, tag=self._number, group_peer=peer)
                    )
        with telling(f"exchanging rows with ranks {sorted(peers)}"):
            works = dist.batch_isend_irecv(operations) if operations else []
        self.traffic += Traffic(out.nbytes, received.nbytes, 1)
        return Messages(works, received, out, sorted(peers))


class PendingExchange:
    """An exchange that has begun; it ends when :meth:`end` is called."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.token: Tensor | None = None
        self._messages: Messages | None = None

    def end(self) -> Tensor:
        """Wait for the halo's rows and return them, [h, F]."""
        # Drop the token from this object, because the token's gradient function holds this object.
        token, self.token = self.token, None
        halo: Tensor = _End.apply(token, self)  # type: ignore[no-untyped-call]
        return halo

    def send(self, x: Tensor) -> None:
        """Post the rows that other processes need."""
        self._messages = self.exchange.forwards(self.packed(x))

    def receive(self) -> Tensor:
        """Wait for messages and return [h, F], halo rows, or [s, F], gradients of rows that were sent."""
        messages, self._messages = self._messages, None
        assert messages is not None
        return self.unpacked(messages.wait())

    def send_gradients(self, grad: Tensor) -> None:
        """Post the gradients of the halo's rows."""
        self._messages = self.exchange.backwards(self.packed(grad))

    def packed(self, rows: Tensor) -> Tensor:
        """Return rows, or gradients of rows, in the form in which they are sent."""
        return rows

    def unpacked(self, rows: Tensor) -> Tensor:
        """Return received rows, or gradients of rows, in their original form."""
        return rows


class Rounded(PendingExchange):
    """An exchange that sends rows, and gradients of rows, in bfloat16."""

    def packed(self, rows: Tensor) -> Tensor:
        """Return the rows rounded to bfloat16."""
        self._dtype = rows.dtype
        return rows.bfloat16() if rows.dtype in _WIDE else rows

    def unpacked(self, rows: Tensor) -> Tensor:
        """Return the rows converted back to their original dtype."""
        return rows.to(self._dtype)


HaloMode = Literal["exact", "bfloat16"]
_MODES: dict[HaloMode, type[PendingExchange]] = {"exact": PendingExchange, "bfloat16": Rounded}


class Halos:
    """Context manager that sets how halos of some exchanges arrive; see :meth:`DistributedGraph.halos`."""

    def __init__(self, exchanges: list[Exchange], mode: HaloMode) -> None:
        check_choice("mode", mode, _MODES)
        self._exchanges = exchanges
        self._kind = _MODES[mode]
        self._before: list[list[type[PendingExchange]]] = []

    def __enter__(self) -> "Halos":
        self._before.append([exchange.kind for exchange in self._exchanges])
        for exchange in self._exchanges:
            exchange.kind = self._kind
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous mode; a backward pass may follow."""
        for exchange, kind in zip(self._exchanges, self._before.pop(), strict=True):
            exchange.kind = kind


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pending: PendingExchange) -> Tensor:
        ctx.pending, ctx.shape = pending, tuple(x.shape)
        pending.send(x)
        # The token represents the rows in transit; in the backward pass, it receives a placeholder gradient.
        return x.new_empty(())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        pending = ctx.pending
        return pending.exchange.added(ctx.shape, pending.receive()), None


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, pending: PendingExchange) -> Tensor:
        ctx.pending = pending
        return pending.receive()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.pending.send_gradients(grad)
        return grad.new_zeros(()), None
