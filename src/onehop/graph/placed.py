"""Compressed rows that are made on a device; the host does not wait, and nothing is copied to it.

The arrays equal those of the native builder (``csrc/runtime/csr_build.cpp``), bit for bit, with one
difference: there is always a permutation, because it is not tested whether the edges are already in the order
of their rows.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.graph.streams import Streams

# torch sorts at most this many numbers at once on a GPU; graphs with more edges are made on the host.
MOST_EDGES = 2**31 - 1

# The types of devices on which graphs are made. Tests add the CPU.
MADE_ON = {"cuda"}


@dataclass(frozen=True, slots=True)
class PlacedCsr:
    """The rows of a graph or its transpose on a device. The arrays must not be written to.

    Attributes:
        rows: Number of rows.
        cols: Number of columns.
        edges: Number of edges.
        rowptr: [rows + 1], int64: bounds of each row's edges.
        col: [E], int32: the column of every edge, row by row.
        perm: [E], int32 or int64: the caller's number of every edge; None if the orders are known to agree.
        streams: The device streams that may read the arrays.
        owns_memory: Whether the arrays belong to this object, and not to a graph on the host.
    """

    rows: int
    cols: int
    edges: int
    rowptr: Tensor
    col: Tensor
    perm: Tensor | None
    streams: Streams
    owns_memory: bool = True

    @classmethod
    def of(cls, csr: Any, device: torch.device) -> "PlacedCsr":
        """Return a native graph on a device; on the CPU, its arrays are shared and not copied."""
        perm = None if csr.perm is None else csr.perm.to(device)
        arrays = csr.rowptr.to(device), csr.col.to(device), perm
        return cls(csr.rows, csr.cols, csr.edges, *arrays, Streams(arrays), device.type != "cpu")

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_src: int, num_dst: int, wide: bool) -> "PlacedCsr":
        """Make the graph of a list of edges, [2, E], int32 or int64, all in range, on their device.

        If ``wide``, the caller's edge numbers have 64 bits.
        """
        source, target = edge_index[0], edge_index[1]
        rowptr, order = _sorted(target.int(), num_dst)
        col = source.index_select(0, order).int()
        return cls._streamed(num_dst, num_src, rowptr, col, order.to(torch.int64 if wide else torch.int32))

    def transpose(self) -> "PlacedCsr":
        """Return the rows with rows and columns swapped; in each new row, edges are ordered by column."""
        self.streams.meet()
        rowptr, order = _sorted(self.col, self.cols)
        col = self.row_of_edges().index_select(0, order)
        perm = order.int() if self.perm is None else self.perm.index_select(0, order)
        return self._streamed(self.cols, self.rows, rowptr, col, perm)

    def row_of_edges(self) -> Tensor:
        """Return the row of every edge, [E], int32."""
        rows = torch.arange(self.rows, dtype=torch.int32, device=self.device)
        return torch.repeat_interleave(rows, self.rowptr.diff(), output_size=self.edges)

    def edge_index(self) -> Tensor:
        """Return the edges as a new tensor, [2, E], int64 (columns, rows), in the caller's edge order."""
        by_row = torch.stack([self.col, self.row_of_edges()]).long()
        if self.perm is None:
            return by_row
        return torch.empty_like(by_row).index_copy_(1, self.perm.long(), by_row)

    @property
    def device(self) -> torch.device:
        """The device of the arrays."""
        return self.col.device

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays; 0 if they belong to a graph on the host, which counts them."""
        if not self.owns_memory:
            return 0
        return self.rowptr.nbytes + self.col.nbytes + (0 if self.perm is None else self.perm.nbytes)

    @classmethod
    def _streamed(cls, rows: int, cols: int, rowptr: Tensor, col: Tensor, perm: Tensor) -> "PlacedCsr":
        return cls(rows, cols, col.numel(), rowptr, col, perm, Streams((rowptr, col, perm)))


def key(device: torch.device, transposed: bool) -> Hashable:
    """Return the key, in a graph's derived data, of its rows or its transpose's rows on a device."""
    return "rows", transposed, device


def rows_of(graph: Any, device: torch.device, transposed: bool) -> PlacedCsr:
    """Return the rows of a graph or its transpose on a device; made on first use, cached with the graph."""
    of_device = key(device, transposed)
    csr: PlacedCsr | None = graph.derived.get(of_device)
    if csr is None:
        with graph.lock:
            csr = graph.derived.get(of_device)
            if csr is None:
                if device == graph.made_on:
                    csr = rows_of(graph, device, False).transpose()
                else:
                    csr = PlacedCsr.of(graph.transposed_csr if transposed else graph.csr, device)
                graph.keep(of_device, csr, device)
    csr.streams.meet()
    return csr


def _sorted(row: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return the bounds of rows, [rows + 1], and the edges ordered by row, [E], both int64."""
    ascending, order = torch.sort(row, stable=True)
    every = torch.arange(rows + 1, dtype=torch.int64, device=row.device).int()
    return torch.searchsorted(ascending, every), order
