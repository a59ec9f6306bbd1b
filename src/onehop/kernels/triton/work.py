"""A graph cut into work items for GPU programs; made once for each direction and plan, then cached.

Rows may be taken in any order, such as one in which neighbours are close to each other: programs that run at
the same time then share sources in the caches. A row's result is written to its own place in any order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.graph.reorder import row_order

# Numbers of edges stay in 32 bits if a tile that begins at the last edge ends below 2^31.
_NARROW_EDGES = 2**31 - 2**16
# Short items are sorted by length within windows of this size, a multiple of the most that share a program:
# near enough to share sources, and large enough that a program's items have similar length.
_WINDOW = 4096


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of a graph as items of a bounded number of edges, the long ones first.

    An item is a whole row, or, if a row has more than ``split_edges`` edges, one of its even pieces. Each
    piece has a slot in a buffer of partial results; ``split_begin`` gives the slots of a row. All tensors are
    on the device of the features.

    Attributes:
        rows: Rows of the result.
        edges: E.
        col: [E], int32: the column (the source, or in the transposed graph the destination) of every edge,
            row by row.
        perm: [E], int32 or int64: the caller's number of every edge; None where the orders agree.
        row: [items], int32: the row of every item.
        begin: [items], int32 (int64 in graphs of about 2^31 edges or more): its first edge.
        end: [items], likewise: one past its last edge.
        slot: [items], int32: slot of its partial result; -1 for a whole row.
        long_items: Number of items with more than ``short_edges`` edges. These come first, the longest ahead,
            and those of the same power of two in the order of their rows. The others follow in the order of
            their rows, but are sorted by length, longest first, within windows of 4096.
        slots: Number of slots.
        split_row: [split rows], int32: the rows that were split.
        split_begin: [split rows + 1], int32: the first slot of each.
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

    @property
    def items(self) -> int:
        """Number of items."""
        return self.row.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, except for those that works of the same direction share."""
        own = (self.row, self.begin, self.end, self.slot, self.split_row, self.split_begin)
        return sum(tensor.nbytes for tensor in own)


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
    key = ("work", transposed, device, split_edges, min(short_edges, split_edges), ordering)
    found = graph.derived.get(key)
    if found is None:
        with graph.lock:
            found = graph.derived.get(key)
            if found is None:
                col, perm = _edges(graph, transposed, device)
                csr = graph.transposed_csr if transposed else graph.csr
                order = None if ordering == "none" else row_order(graph, ordering, transposed).long()
                found = _cut(csr.rowptr, col, perm, split_edges, short_edges, order, device)
                graph.derived[key] = found
    return found


@dataclass(frozen=True, slots=True)
class _Edges:
    """The data that all works of one direction share."""

    col: Tensor
    perm: Tensor | None

    @property
    def nbytes(self) -> int:
        if self.col.device.type == "cpu":
            return 0  # the graph's own
        return self.col.nbytes + (0 if self.perm is None else self.perm.nbytes)


def _edges(graph: Graph, transposed: bool, device: torch.device) -> tuple[Tensor, Tensor | None]:
    key = ("edges", transposed, device)
    if key not in graph.derived:
        csr = graph.transposed_csr if transposed else graph.csr
        perm = None if csr.perm is None else csr.perm.to(device)
        graph.derived[key] = _Edges(csr.col.to(device), perm)
    found = graph.derived[key]
    return found.col, found.perm


def _cut(
    rowptr: Tensor,
    col: Tensor,
    perm: Tensor | None,
    split_edges: int,
    short_edges: int,
    row_order: Tensor | None,
    device: torch.device,
) -> Work:
    degree = rowptr.diff()
    rows, edges = degree.numel(), col.numel()
    pieces = ((degree + split_edges - 1) // split_edges).clamp(min=1)
    row = torch.repeat_interleave(torch.arange(rows, device="cpu"), pieces)
    ordinal = torch.arange(row.numel(), device="cpu") - (pieces.cumsum(0) - pieces)[row]
    step = (degree + pieces - 1) // pieces
    begin = torch.minimum(rowptr[row] + ordinal * step[row], rowptr[row + 1])
    end = torch.minimum(begin + step[row], rowptr[row + 1])
    cut = pieces > 1
    in_slot = cut[row]
    slot = torch.where(in_slot, in_slot.cumsum(0) - 1, -1)
    split_begin = torch.cat([pieces.new_zeros(1), pieces[cut].cumsum(0)])
    length = end - begin
    order = _launched(row, length, short_edges, row_order)
    wide = torch.int32 if edges <= _NARROW_EDGES else torch.int64

    def there(values: Tensor, dtype: torch.dtype) -> Tensor:
        return values.to(dtype).to(device)

    return Work(
        rows=rows,
        edges=edges,
        col=col,
        perm=perm,
        row=there(row[order], torch.int32),
        begin=there(begin[order], wide),
        end=there(end[order], wide),
        slot=there(slot[order], torch.int32),
        long_items=int((length > short_edges).sum()),
        slots=int(in_slot.sum()),
        split_row=there(cut.nonzero().squeeze(1), torch.int32),
        split_begin=there(split_begin, torch.int32),
    )


def _launched(row: Tensor, length: Tensor, short_edges: int, row_order: Tensor | None) -> Tensor:
    """Return [items]: the launch order of items, given their rows and lengths."""
    items = torch.arange(row.numel(), device="cpu")
    if row_order is not None:
        place = torch.empty_like(row_order)
        place[row_order] = torch.arange(row_order.numel(), device="cpu")
        items = place[row].sort(stable=True).indices
    is_long = length[items] > short_edges
    long, short = items[is_long], items[~is_long]
    # The next power of two: the longest start first, and rows of one power of two keep their order.
    power = torch.bucketize(length[long], 2 ** torch.arange(63, device="cpu"))
    long = long[power.sort(descending=True, stable=True).indices]
    # Exact, since a program waits for its longest item.
    window = torch.arange(short.numel(), device="cpu") // _WINDOW
    key = window * (short_edges + 1) + (short_edges - length[short])
    return torch.cat([long, short[key.sort(stable=True).indices]])
