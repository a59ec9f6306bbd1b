"""Edges as two columns of node numbers, which can be sorted, and selected by masks of nodes."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from onehop import native
from onehop.graph.lending import read_address

# Two node numbers and the position of an edge are sorted as one integer.
_MOST_NODES = 2**31


class EdgeColumns:
    """The rows and columns of edges.

    Masks of nodes are contiguous bool tensors. :meth:`sorted` and :meth:`are_paired` need valid edges. The
    owner of the edges may write to them at any time, so native code checks each number when it uses it.
    """

    def __init__(self, edge_index: Tensor, flipped: bool = False) -> None:
        """Keeps the columns of [2, E], int32 or int64, on the CPU; E is at least 1.

        If ``flipped``, the second row of ``edge_index`` has the rows.
        """
        self._flipped = flipped
        # The tensors are kept because native code keeps their addresses.
        self._row, self._col = (each.contiguous() for each in self.lines(edge_index))
        columns = native.extension.EdgeColumns()
        columns.row, columns.col = read_address(self._row), read_address(self._col)
        columns.count, columns.is_wide = len(self), edge_index.dtype == torch.int64
        self._columns = columns

    def __len__(self) -> int:
        return self._row.numel()

    @cached_property
    def _ends(self) -> "native.extension.EdgeEnds":
        return native.extension.edge_ends(self._columns, native.threads())

    @property
    def num_nodes(self) -> int:
        """One more than the largest node number; 0 if a number is negative."""
        return max(self._ends.rows, self._ends.cols, 0)

    @property
    def are_valid(self) -> bool:
        """True if no number is negative or takes more than 31 bits."""
        return 0 < self.num_nodes <= _MOST_NODES

    def sorted(self, *, mirrored: bool = False, numbered: bool = False) -> "SortedEdges":
        """Return the edges sorted by row, then by column; equal edges keep their order.

        If ``mirrored``, the edges with rows and columns swapped are included, after the given edges.
        :attr:`SortedEdges.numbers` needs ``numbered``.
        """
        edges = native.extension.SortedEdges(self._columns, self._ends, mirrored, numbered, native.threads())
        return SortedEdges(self, edges)

    def are_paired(self) -> bool:
        """Return whether every edge occurs as many times as its reverse."""
        return native.extension.are_paired(self._columns, self._ends, native.threads())

    def mark_ends(self, node_mask: Tensor) -> bool:
        """Mark both ends of all edges except loops; return whether all ends have an entry in the mask."""
        return native.extension.mark_ends(
            self._columns, node_mask.data_ptr(), node_mask.numel(), native.threads()
        )

    def mark_reached(self, node_mask: Tensor, reached: Tensor, edge_mask: Tensor) -> bool:
        """Mark the columns of edges whose rows are marked in ``node_mask``.

        Columns are marked in ``reached``, a mask of the same size, and edges in ``edge_mask``, [E], bool.
        Returns whether every row, and every marked column, has an entry in ``node_mask``; if not, the marks
        are meaningless.
        """
        return native.extension.mark_reached(
            self._columns,
            read_address(node_mask),
            node_mask.numel(),
            reached.data_ptr(),
            edge_mask.data_ptr(),
            native.threads(),
        )

    def mark_inner(self, node_mask: Tensor, edge_mask: Tensor) -> bool:
        """Mark exactly the edges whose ends are both marked in ``node_mask``, in ``edge_mask``, [E].

        Returns whether every end has an entry in ``node_mask``; if not, the marks are meaningless.
        """
        return native.extension.mark_inner_edges(
            self._columns, read_address(node_mask), node_mask.numel(), edge_mask.data_ptr(), native.threads()
        )

    def marked(self, edge_mask: Tensor, mapping: Tensor | None = None) -> Tensor | None:
        """Return the edges that are marked in ``edge_mask``, [E], bool: [2, E'], of the edges' dtype.

        ``mapping``, of the edges' dtype, has the new number of each node; None keeps the numbers. No other
        thread may write to the mask or the mapping. Returns None if a node of a marked edge has no entry in
        the mapping.
        """
        out = self.empty(int(edge_mask.count_nonzero()))
        row, col = self.lines(out)
        in_range = native.extension.write_marked(
            self._columns,
            read_address(edge_mask),
            0 if mapping is None else mapping.data_ptr(),
            0 if mapping is None else mapping.numel(),
            row.data_ptr(),
            col.data_ptr(),
            native.threads(),
        )
        return out if in_range else None

    def empty(self, count: int) -> Tensor:
        """Return an uninitialised tensor, [2, count], of the edges' dtype."""
        return torch.empty((2, count), dtype=self._row.dtype, device="cpu")

    def lines(self, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows and the columns of an edge index, [2, E']."""
        first, second = edge_index[0], edge_index[1]
        return (second, first) if self._flipped else (first, second)


class SortedEdges:
    """Edges sorted by row, then by column."""

    def __init__(self, edges: EdgeColumns, native_edges: Any) -> None:
        self._edges, self._native, self._keys = edges, native_edges, native_edges.keys

    @property
    def has_duplicates(self) -> bool:
        """True if an edge is repeated."""
        return bool(self._keys.distinct < self._keys.count)

    def edge_index(self, *, once: bool) -> Tensor:
        """Return the edges, [2, E'], of their dtype; repeated edges are kept, unless ``once``."""
        out = self._edges.empty(self._keys.distinct if once else self._keys.count)
        row, col = self._edges.lines(out)
        self._native.write_ends(row.data_ptr(), col.data_ptr(), once, native.threads())
        return out

    @cached_property
    def numbers(self) -> Tensor:
        """The position of each sorted edge in the given order, [E], int64."""
        return self._written(self._keys.write_notes, self._keys.count)

    @cached_property
    def groups(self) -> Tensor:
        """The number of distinct edges before each sorted edge, [E], int64."""
        return self._written(self._keys.write_groups, self._keys.count)

    @cached_property
    def inverse(self) -> Tensor:
        """Like :attr:`groups`, for each edge in the given order, [E], int64; needs ``numbered``."""
        return self._written(self._keys.write_inverse, self._keys.count)

    @cached_property
    def counts(self) -> Tensor:
        """The number of occurrences of each distinct edge, [E'], int64."""
        return self._written(self._keys.write_counts, self._keys.distinct)

    def _written(self, write: Callable[[int, int], None], count: int) -> Tensor:
        out = torch.empty(count, dtype=torch.int64, device="cpu")
        write(out.data_ptr(), native.threads())
        return out
