"""A graph cut into windows of 16 rows, for tensor cores; cached for each direction and device.

A window's columns are the sources of any of its rows, in ascending order, each with a 16-bit mask of the rows
that have it. A program reads 16 rows x some columns at a time, a small dense matrix, and reads a source's
features once for all the window's rows. A repeated edge of a row uses another column of the same source, so
that every bit is one edge.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.kernels.triton.merges import Merge, merges_of
from onehop.kernels.triton.work import _NARROW_EDGES

# Rows that tensor cores multiply at a time.
WINDOW = 16
DTYPES = (torch.bfloat16, torch.float16)
# A gathered row that serves two edges halves the traffic. In a block of 16 x 8 these are 16 edges.
LEAST_EDGES_PER_COLUMN = 2.0
# For attention; wider rows of a window and their gradients would not fit the registers.
MOST_HEAD_WIDTH = 128
_SAMPLED_WINDOWS = 1024


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of all windows, one window after the other; 10 bytes each, and ``perm``.

    Attributes:
        begin: [windows + 1], int64, on the CPU: bounds of each window's columns.
        source: [C], int32: the source of each column.
        members: [C], int16: bit r is set where row r of the window has it.
        first_edge: [C], int32 (int64 in graphs of about 2^31 edges or more): the position in ``perm`` of the
            column's first edge; the others follow, in the order of the rows.
        perm: [E], int32 or int64: the caller's number of every edge, column by column.
    """

    begin: Tensor
    source: Tensor
    members: Tensor
    first_edge: Tensor
    perm: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        tensors = (self.begin, self.source, self.members, self.first_edge, self.perm)
        return sum(tensor.nbytes for tensor in tensors)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The windows of a graph as items of a bounded number of columns, the longest first.

    An item is a whole window, or, if a window has too many columns, one of its even pieces. In a split
    window, every row with edges has consecutive slots, one for each piece.

    Attributes:
        rows: Rows of the result.
        columns: The columns that the items iterate over.
        window: [items], int32: the window of every item.
        begin: [items], int32 (or int64): its first column.
        end: [items], likewise: one past its last column.
        piece: [items], int32: index of the piece in its window.
        row_slot: [rows], int32: the first slot of a row of a split window; -1 for other rows, and -2 for rows
            without edges.
        slots: Number of slots.
        merges: The launches that merge these slots.
    """

    rows: int
    columns: Columns
    window: Tensor
    begin: Tensor
    end: Tensor
    piece: Tensor
    row_slot: Tensor
    slots: int
    merges: tuple[Merge, ...]

    @property
    def items(self) -> int:
        """Number of items."""
        return self.window.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, except for the columns, which blocks of the same direction share."""
        own = (self.window, self.begin, self.end, self.piece, self.row_slot)
        return sum(
            tensor.nbytes for tensor in (*own, *(each for merge in self.merges for each in merge.tensors))
        )


def blocks_of(graph: Graph, transposed: bool, device: torch.device, split_columns: int) -> Blocks:
    """The windows of a graph; cached with the graph.

    Args:
        graph: The graph.
        transposed: Whether rows are sources.
        device: Device of the tensors.
        split_columns: Most columns of an item.
    """
    key = ("blocks", transposed, device, split_columns)
    found: Blocks | None = graph.derived.get(key)
    if found is None:
        with graph.lock:
            found = graph.derived.get(key)
            if found is None:
                csr = graph.transposed_csr if transposed else graph.csr
                columns = graph.derived.get(key[:3])
                if columns is None:
                    cols = graph.num_dst if transposed else graph.num_src
                    perm = None if csr.perm is None else csr.perm.to(device)
                    columns = _columns(csr.rowptr.to(device), csr.col.to(device), perm, cols)
                    graph.derived[key[:3]] = columns
                found = graph.derived[key] = _cut(csr.rowptr, columns, split_columns, device)
    return found


def edges_per_column(graph: Graph, transposed: bool = False, windows: int = _SAMPLED_WINDOWS) -> float:
    """Edges that a gathered row serves: edges divided by columns, over evenly spaced windows.

    At least 1, and at most 16. The mean number of edges in a block of 16 x 8 is eight times as much. Repeated
    edges count once. 0 without edges.

    Args:
        graph: The graph.
        transposed: Whether rows are sources.
        windows: Approximate number of windows to sample.
    """
    csr = graph.transposed_csr if transposed else graph.csr
    cols = graph.num_dst if transposed else graph.num_src
    step = max(csr.rows // WINDOW // windows, 1)
    rows = torch.arange(csr.rows, device="cpu")
    rows = rows[rows // WINDOW % step == 0]
    degree = csr.rowptr.diff()[rows]
    first = degree.cumsum(0) - degree
    row = torch.repeat_interleave(rows, degree)
    place = torch.arange(row.numel(), device="cpu") + torch.repeat_interleave(
        csr.rowptr[rows] - first, degree
    )
    edges = _keys(row, csr.col[place], cols).unique()
    columns = (edges // WINDOW).unique()
    return int(edges.numel()) / max(int(columns.numel()), 1)


def pays(graph: Graph, dtype: torch.dtype) -> bool:
    """Return whether blocks are worth trying: 16-bit features, and two edges a gathered row both ways."""
    return dtype in DTYPES and all(
        edges_per_column(graph, transposed) >= LEAST_EDGES_PER_COLUMN for transposed in (False, True)
    )


def _keys(row: Tensor, col: Tensor, cols: int) -> Tensor:
    """Sort keys of the edges, int64: by window, column and row of the window."""
    return (row // WINDOW * cols + col) * WINDOW + row % WINDOW


def _columns(rowptr: Tensor, col: Tensor, perm: Tensor | None, cols: int) -> Columns:
    rows, edges, device = rowptr.numel() - 1, col.numel(), col.device
    row = torch.repeat_interleave(torch.arange(rows, device=device), rowptr.diff())
    key, order = _keys(row, col, cols).sort(stable=True)
    # The number of earlier copies of an edge: the index among its source's columns.
    run, begin_of_run = _runs(key)
    repeat = torch.arange(edges, device=device) - begin_of_run[run]
    # Pairs of a window and a source, and the number of columns of each.
    pair, begin_of_pair = _runs(key // WINDOW)
    pair_key = key[begin_of_pair] // WINDOW
    needed = torch.zeros_like(pair_key).scatter_reduce_(0, pair, repeat + 1, "amax")
    column = (needed.cumsum(0) - needed)[pair] + repeat
    if edges > run[-1:].sum() + 1:  # some edge is repeated
        column, again = (column * WINDOW + key % WINDOW).sort(stable=True)
        key, order, column = key[again], order[again], column // WINDOW
    count = int(needed.sum())
    members = torch.zeros(count, dtype=torch.int32, device=device)
    members.scatter_add_(0, column, (1 << (key % WINDOW)).int())
    in_column = column.bincount(minlength=count)
    window = torch.repeat_interleave(pair_key // max(cols, 1), needed)
    in_window = window.bincount(minlength=-(-rows // WINDOW))
    narrow = torch.int32 if edges <= _NARROW_EDGES else torch.int64
    return Columns(
        begin=torch.cat([in_window.new_zeros(1), in_window.cumsum(0)]).cpu(),
        source=torch.repeat_interleave(pair_key % max(cols, 1), needed).int(),
        members=members.to(torch.int16),
        first_edge=(in_column.cumsum(0) - in_column).to(narrow),
        perm=order.to(narrow) if perm is None else perm[order],
    )


def _runs(key: Tensor) -> tuple[Tensor, Tensor]:
    """Runs of sorted keys: the index of each one's run of equal keys, and the begins of the runs."""
    fresh = torch.ones_like(key, dtype=torch.bool)
    torch.ne(key[1:], key[:-1], out=fresh[1:])
    return fresh.cumsum(0) - 1, fresh.nonzero().squeeze(1)


def _cut(rowptr: Tensor, columns: Columns, split_columns: int, device: torch.device) -> Blocks:
    begin = columns.begin
    windows, rows = begin.numel() - 1, rowptr.numel() - 1
    in_window = begin.diff()
    pieces = ((in_window + split_columns - 1) // split_columns).clamp(min=1)
    window = torch.repeat_interleave(torch.arange(windows, device="cpu"), pieces)
    piece = torch.arange(window.numel(), device="cpu") - (pieces.cumsum(0) - pieces)[window]
    step = (in_window + pieces - 1) // pieces
    first = torch.minimum(begin[window] + piece * step[window], begin[window + 1])
    end = torch.minimum(first + step[window], begin[window + 1])
    order = (end - first).sort(descending=True, stable=True).indices

    empty = rowptr.diff() == 0
    row_pieces = torch.repeat_interleave(pieces, WINDOW)[:rows]
    cut = (row_pieces > 1) & ~empty
    row_slots = torch.where(cut, row_pieces, 0)
    row_slot = torch.where(cut, row_slots.cumsum(0) - row_slots, torch.where(empty, -2, -1))
    split_row = cut.nonzero().squeeze(1)
    split_begin = torch.cat([row_slots.new_zeros(1), row_slots[cut].cumsum(0)])
    slots = int(row_slots.sum())
    longest = int(row_slots.max()) if slots else 0

    def there(values: Tensor, dtype: torch.dtype = torch.int32) -> Tensor:
        return values.to(dtype).to(device)

    wide = columns.first_edge.dtype
    return Blocks(
        rows=rows,
        columns=columns,
        window=there(window[order]),
        begin=there(first[order], wide),
        end=there(end[order], wide),
        piece=there(piece[order]),
        row_slot=there(row_slot),
        slots=slots,
        merges=merges_of(split_row.to(device), split_begin.to(device), slots, longest) if slots else (),
    )
