"""Division of a graph into work items for GPU programs; made once for each direction and plan, then cached.

Rows may be processed in any order, for example one in which neighbours are close to each other, so that
programs that run at the same time share sources in the caches. In any order, a row's result is written to the
row's own place.

Items are made on the device of the features. Their number depends on the degrees. For a graph that was made
on a device, the host does not wait for this number: it uses the maximal possible number, and surplus items
have no edges.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.placed import PlacedCsr
from onehop.graph.reorder import row_order
from onehop.graph.streams import Streams
from onehop.kernels.triton.merges import Merge, merges_of, rows_with_most

# Edge numbers have 32 bits if a tile that begins at the last edge ends below 2^31.
_NARROW_EDGES = 2**31 - 2**16
# Short items are sorted by length within windows of this size. It is a multiple of the maximal number of
# items in a program, small enough that items share sources, and large enough that a program's items have
# similar lengths.
_WINDOW = 4096
# For a graph that was made on a device, the longest row is assumed to have 1 / _LONGEST_PART of all edges.
_LONGEST_PART = 64
# The number of length classes of long items: the powers of two of int64.
_POWERS = 64


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of a graph as items with a bounded number of edges; long items come first.

    An item is a whole row, or, if a row has more than ``split_edges`` edges, one of its equal pieces. Each
    piece has a slot in a buffer of partial results; ``split_begin`` gives the slots of a row. All tensors are
    on the device of the features.

    If the host did not wait for the numbers of items, the rows with most edges have slots even if they are
    whole: there are enough slots for all rows that can be split (rows without edges may be among them,
    without slots). Surplus items without edges come last, with a slot that no row uses, and some short items
    count as long items.

    Attributes:
        rows: Rows of the result.
        edges: E.
        col: [E], int32: the column (the source, or in the transposed graph the destination) of every edge,
            row by row.
        perm: [E], int32 or int64: the caller's number of every edge; None if the orders agree.
        row: [items], int32: the row of every item.
        begin: [items], int32 (int64 in graphs of about 2^31 edges or more): the first edge of every item.
        end: [items], of the same dtype: one past the last edge of every item.
        slot: [items], int32: the slot of the partial result; -1 for a whole row without a slot.
        long_items: Number of first items that include all items with more than ``short_edges`` edges. They
            are ordered by length, longest first; items with the same power of two are in the order of their
            rows. The other items follow in the order of their rows, but are sorted by length, longest first,
            within windows of 4096.
        slots: Number of slots.
        split_row: [split rows], int32: the rows that have slots.
        split_begin: [split rows + 1], int32: the first slot of each of these rows.
        merges: The launches that merge the slots of these rows.
        streams: The device streams that may read the tensors.
    """

    rows: int
    edges: int
    col: Tensor
    perm: Tensor | None
    row: Tensor
    begin: Tensor
    end: Tensor
    slot: Tensor
    long_items: int
    slots: int
    split_row: Tensor
    split_begin: Tensor
    merges: tuple[Merge, ...]
    streams: Streams

    def slots_like(self, like: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return memory for partial results of rows like ``like``, [slots, ...]; None if no row is split."""
        return like.new_empty((self.slots, *like.shape[1:]), dtype=dtype) if self.slots else None

    def sweeps(
        self, rows: Tensor, *slots: Tensor | None
    ) -> Iterator[tuple["Work | Merge", Tensor, Sequence[Tensor | None], Sequence[Tensor | None]]]:
        """Yields the sweeps that reduce rows: over the items, then, level by level, over slots of split rows.

        Each sweep comes with the rows that it reads, further slots that it reads (None at first), and the
        slots that it fills.
        """
        yield self, rows, (None,) * (len(slots) - 1), slots
        for merge in self.merges:
            (partial, *beside), slots = slots, tuple(map(merge.next_slots, slots))
            assert partial is not None
            yield merge, partial, beside, slots

    @property
    def items(self) -> int:
        """Number of items."""
        return self.row.numel()

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.row.device

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors, except tensors that all works of the same direction share."""
        tensors = (self.row, self.begin, self.end, self.slot, self.split_row, self.split_begin)
        return sum(
            tensor.nbytes for tensor in (*tensors, *(each for merge in self.merges for each in merge.tensors))
        )


def work_of(
    graph: Graph,
    transposed: bool,
    device: torch.device,
    split_edges: int,
    short_edges: int,
    ordering: str = "none",
) -> Work:
    """Return the work of a graph; it is cached with the graph.

    Args:
        graph: The graph.
        transposed: Whether rows are sources.
        device: The device of the tensors.
        split_edges: The maximal number of edges of an item.
        short_edges: The maximal number of edges of an item that shares its program.
        ordering: The order in which rows become items, see :class:`onehop.plans.TritonPlan`.
    """
    short_edges = min(short_edges, split_edges)
    key = ("work", transposed, device, split_edges, short_edges, ordering)
    work: Work | None = graph.derived.get(key)
    if work is None:
        with graph.lock:
            work = graph.derived.get(key)
            if work is None:
                order = None
                if ordering != "none":
                    order = row_order(graph, ordering, transposed).to(device).long()
                csr = graph.on(device, transposed)
                count = most if graph.made_on == device else counted
                work = _cut(csr, _Limits(split_edges, short_edges), count, order)
                graph.keep(key, work, device)
    work.streams.meet()
    return work


class _Limits(NamedTuple):
    """The maximal numbers of edges of an item, and of an item that shares its program."""

    split: int
    short: int


class Counts(NamedTuple):
    """Counts that depend on the degrees.

    Attributes:
        items: Number of items.
        split: Number of rows that have slots.
        slots: Number of slots.
        long: Number of first items that include all long items.
        longest: The maximal number of slots of a row.
    """

    items: int
    split: int
    slots: int
    long: int
    longest: int


def counted(csr: PlacedCsr, limits: _Limits) -> Counts:
    """Return the counts of a graph; the host waits for them."""
    degree, pieces, step = _pieces(csr, limits.split)
    last, cut = degree - (pieces - 1) * step, pieces > 1
    long = (pieces - 1) * (step > limits.short) + (last > limits.short)
    longest = torch.cat([pieces, pieces.new_zeros(1)]).max()
    numbers = torch.stack([pieces.sum(), cut.sum(), (pieces * cut).sum(), long.sum(), longest])
    return Counts(*numbers.tolist())


def most(csr: PlacedCsr, limits: _Limits) -> Counts:
    """Return the largest possible counts for a number of rows and edges.

    A row of d edges has 1 + (d - 1) // split pieces, and a piece is long or has at most ``short`` edges. Only
    the longest row is a guess: a 64th of all edges, so that the graphs of mini-batches have one merge. If it
    has more edges, its merges take longer.
    """
    split = min(csr.edges // (limits.split + 1), csr.rows)
    more = max(csr.edges - 1, 0) // limits.split
    items = csr.rows + more
    # One more slot is for surplus items.
    slots = split + more + 1 if split else 0
    long = min(csr.edges // (limits.short + 1), items)
    return Counts(items, split, slots, long, -(-more // _LONGEST_PART))


def _pieces(csr: PlacedCsr, split_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for every row, [rows], int64: its edges, its pieces, and the edges of a piece but the last."""
    degree = csr.rowptr.diff()
    pieces = ((degree + split_edges - 1) // split_edges).clamp_(min=1)
    return degree, pieces, (degree + pieces - 1) // pieces


def _cut(
    csr: PlacedCsr,
    limits: _Limits,
    count: Callable[[PlacedCsr, _Limits], Counts],
    row_order: Tensor | None,
) -> Work:
    """Makes the work of a graph on its device; the host waits only in ``count``."""
    device, counts = csr.device, count(csr, limits)
    degree, pieces, step = _pieces(csr, limits.split)
    after = pieces.cumsum(0)
    item = torch.arange(counts.items, device=device)
    row = torch.searchsorted(after, item, right=True)
    real = row < csr.rows
    # Surplus items become empty pieces of the last row.
    row.clamp_(max=max(csr.rows - 1, 0))
    ordinal = item - (after - pieces)[row]
    ends = csr.rowptr[1:][row]
    begin = torch.minimum(csr.rowptr[row] + ordinal * step[row], ends)
    end = torch.minimum(begin + step[row], ends)
    split_row = rows_with_most(degree, counts.split)
    # Rows without edges are whole, and have no slots even if they are among these rows.
    in_slot = torch.zeros_like(degree, dtype=torch.bool).index_fill_(0, split_row, True)[row] & (begin < end)
    slot = torch.where(in_slot, in_slot.cumsum(0) - 1, -1)
    if counts.split:
        slot.masked_fill_(~real, counts.slots - 1)
    split_begin = torch.cat([pieces.new_zeros(1), (pieces * (degree > 0))[split_row].cumsum(0)])
    order = _launched(_Items(row, end - begin, real), limits.short, counts.long, row_order)
    wide = torch.int32 if csr.edges <= _NARROW_EDGES else torch.int64
    arrays = {
        "row": row[order].int(),
        "begin": begin[order].to(wide),
        "end": end[order].to(wide),
        "slot": slot[order].int(),
        "split_row": split_row.int(),
        "split_begin": split_begin.int(),
    }
    merges = merges_of(split_row, split_begin, counts.slots, counts.longest) if counts.slots else ()
    return Work(
        rows=csr.rows,
        edges=csr.edges,
        col=csr.col,
        perm=csr.perm,
        long_items=counts.long,
        slots=counts.slots,
        merges=merges,
        streams=Streams(
            (csr.col, csr.perm, *arrays.values(), *(each for merge in merges for each in merge.tensors))
        ),
        **arrays,
    )


class _Items(NamedTuple):
    """Items in the order of their rows: row, length, and whether they are not surplus; [items] each."""

    row: Tensor
    length: Tensor
    real: Tensor


def _launched(items: _Items, short_edges: int, long_items: int, row_order: Tensor | None) -> Tensor:
    """Return the launch order of items, [items].

    Windows of short items begin after the first ``long_items`` items, as programs do, because the first item
    of a program must be its longest.
    """
    device = items.row.device
    order = torch.arange(items.row.numel(), device=device)
    if row_order is not None:
        place = torch.empty_like(row_order)
        place[row_order] = torch.arange(row_order.numel(), device=device)
        order = place[items.row].sort(stable=True).indices
    length, real = items.length[order], items.real[order]
    is_long = length > short_edges
    # Items are classed by the next power of two: the longest start first, and rows of one class keep their
    # order.
    power = torch.bucketize(length, 2 ** torch.arange(_POWERS - 1, device=device))
    # Short items are sorted by exact length, because a program waits for its longest item.
    is_short = real & ~is_long
    place_of_short = is_long.sum() + is_short.cumsum(0) - 1
    before = -(-long_items // _WINDOW)
    window = (place_of_short - long_items).div(_WINDOW, rounding_mode="floor") + before
    of_short = _POWERS + window * (short_edges + 1) + (short_edges - length)
    key = torch.where(is_long, _POWERS - power, of_short)
    key.masked_fill_(~real, torch.iinfo(key.dtype).max)
    return order[key.sort(stable=True).indices]
