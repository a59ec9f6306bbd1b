"""A graph cut into work items for GPU programs; made once for each direction and plan, then cached.

Rows may be taken in any order, such as one in which neighbours are close to each other: programs that run at
the same time then share sources in the caches. A row's result is written to its own place in any order.

Items are cut on the device of the features. How many there are depends on the degrees. For a graph that was
made on a device the host does not wait for that number: it takes the most that there can be, and items that
are left over have no edges.
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

# Numbers of edges stay in 32 bits if a tile that begins at the last edge ends below 2^31.
_NARROW_EDGES = 2**31 - 2**16
# Short items are sorted by length within windows of this size, a multiple of the most that share a program:
# near enough to share sources, and large enough that a program's items have similar length.
_WINDOW = 4096
# Of a graph that was made on a device, the longest row is taken to have one of as many parts of all edges.
_LONGEST_PART = 64
# Classes of long items: the powers of two of int64.
_POWERS = 64


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of a graph as items of a bounded number of edges, the long ones first.

    An item is a whole row, or, if a row has more than ``split_edges`` edges, one of its even pieces. Each
    piece has a slot in a buffer of partial results; ``split_begin`` gives the slots of a row. All tensors are
    on the device of the features.

    Where the host did not wait for the numbers of items, the rows with most edges have slots even if they are
    whole: enough rows that all split ones are among them (and perhaps rows without edges or slots); items
    without edges come last, whose slot no row has; and some short items count as long ones.

    Attributes:
        rows: Rows of the result.
        edges: E.
        col: [E], int32: the column (the source, or in the transposed graph the destination) of every edge,
            row by row.
        perm: [E], int32 or int64: the caller's number of every edge; None where the orders agree.
        row: [items], int32: the row of every item.
        begin: [items], int32 (int64 in graphs of about 2^31 edges or more): its first edge.
        end: [items], of the same dtype: one past its last edge.
        slot: [items], int32: slot of its partial result; -1 for a whole row without one.
        long_items: Number of items among which all are that have more than ``short_edges`` edges. These come
            first, the longest ahead, and those of the same power of two in the order of their rows. The
            others follow in the order of their rows, but are sorted by length, longest first, within windows
            of 4096.
        slots: Number of slots.
        split_row: [split rows], int32: the rows that have slots.
        split_begin: [split rows + 1], int32: the first slot of each.
        merges: The launches that merge the slots of each of these rows.
        streams: Who has met the tensors.
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
        """Room for partial results, [slots, ...] where ``like`` is [rows, ...]; None if no row is split."""
        return like.new_empty((self.slots, *like.shape[1:]), dtype=dtype) if self.slots else None

    def sweeps(
        self, rows: Tensor, *slots: Tensor | None
    ) -> Iterator[tuple["Work | Merge", Tensor, Sequence[Tensor | None], Sequence[Tensor | None]]]:
        """Yields the sweeps that reduce rows: over the items, then over the slots of split rows by levels.

        Each comes with the rows that it reads, slots beside them (None at first), and those that it fills.
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
        """Bytes of the tensors, except for those that works of the same direction share."""
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
    """The work of a graph; cached with the graph.

    Args:
        graph: The graph.
        transposed: Whether rows are sources.
        device: Device of the tensors.
        split_edges: Most edges of an item.
        short_edges: Most edges of an item that shares its program.
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
    """Most edges of an item, and of one that shares its program."""

    split: int
    short: int


class Counts(NamedTuple):
    """Numbers of what depends on the degrees.

    Attributes:
        items: Items.
        split: Rows that have slots.
        slots: Slots.
        long: Items, from the first on, among which all long ones are.
        longest: Slots of the row that has most.
    """

    items: int
    split: int
    slots: int
    long: int
    longest: int


def counted(csr: PlacedCsr, limits: _Limits) -> Counts:
    """The numbers of a graph; the host waits for them."""
    degree, pieces, step = _pieces(csr, limits.split)
    last, cut = degree - (pieces - 1) * step, pieces > 1
    long = (pieces - 1) * (step > limits.short) + (last > limits.short)
    longest = torch.cat([pieces, pieces.new_zeros(1)]).max()
    numbers = torch.stack([pieces.sum(), cut.sum(), (pieces * cut).sum(), long.sum(), longest])
    return Counts(*numbers.tolist())


def most(csr: PlacedCsr, limits: _Limits) -> Counts:
    """The largest counts for a number of rows and edges, over all degrees.

    A row of d edges has (d - 1) // split pieces more than one, and its pieces are long or have at most
    short edges. The longest row alone is a guess: a 64th of all edges, so that the graphs of mini-batches
    have one merge. If it has more, its merges take longer.
    """
    split = min(csr.edges // (limits.split + 1), csr.rows)
    more = max(csr.edges - 1, 0) // limits.split
    items = csr.rows + more
    # One slot more, for items that are left over.
    slots = split + more + 1 if split else 0
    long = min(csr.edges // (limits.short + 1), items)
    return Counts(items, split, slots, long, -(-more // _LONGEST_PART))


def _pieces(csr: PlacedCsr, split_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of every row, [rows], int64: its edges, the number of its pieces, and the edges of all but the last."""
    degree = csr.rowptr.diff()
    pieces = ((degree + split_edges - 1) // split_edges).clamp_(min=1)
    return degree, pieces, (degree + pieces - 1) // pieces


def _cut(
    csr: PlacedCsr,
    limits: _Limits,
    count: Callable[[PlacedCsr, _Limits], Counts],
    row_order: Tensor | None,
) -> Work:
    """Makes the work of a graph, on its device, waiting for it no more than ``count`` does."""
    device, counts = csr.device, count(csr, limits)
    degree, pieces, step = _pieces(csr, limits.split)
    after = pieces.cumsum(0)
    item = torch.arange(counts.items, device=device)
    row = torch.searchsorted(after, item, right=True)
    real = row < csr.rows
    # What is left over becomes empty pieces of the last row.
    row.clamp_(max=max(csr.rows - 1, 0))
    ordinal = item - (after - pieces)[row]
    ends = csr.rowptr[1:][row]
    begin = torch.minimum(csr.rowptr[row] + ordinal * step[row], ends)
    end = torch.minimum(begin + step[row], ends)
    split_row = rows_with_most(degree, counts.split)
    # Rows without edges are whole, and have no slots even where they are among these.
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
    """Items in the order of their rows: rows and lengths, and whether they belong to the graph. [items]."""

    row: Tensor
    length: Tensor
    real: Tensor


def _launched(items: _Items, short_edges: int, long_items: int, row_order: Tensor | None) -> Tensor:
    """Return [items]: the launch order of items.

    Windows of short items begin behind the ``long_items`` first, as programs do: the first item of a program
    must be its longest.
    """
    device = items.row.device
    order = torch.arange(items.row.numel(), device=device)
    if row_order is not None:
        place = torch.empty_like(row_order)
        place[row_order] = torch.arange(row_order.numel(), device=device)
        order = place[items.row].sort(stable=True).indices
    length, real = items.length[order], items.real[order]
    is_long = length > short_edges
    # The next power of two: the longest start first, and rows of one power of two keep their order.
    power = torch.bucketize(length, 2 ** torch.arange(_POWERS - 1, device=device))
    # Exact, since a program waits for its longest item.
    is_short = real & ~is_long
    place_of_short = is_long.sum() + is_short.cumsum(0) - 1
    before = -(-long_items // _WINDOW)
    window = (place_of_short - long_items).div(_WINDOW, rounding_mode="floor") + before
    of_short = _POWERS + window * (short_edges + 1) + (short_edges - length)
    key = torch.where(is_long, _POWERS - power, of_short)
    key.masked_fill_(~real, torch.iinfo(key.dtype).max)
    return order[key.sort(stable=True).indices]
