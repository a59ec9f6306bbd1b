"""Pairs of nodes without an edge, drawn as by Python's ``random.sample``, and lookup of pairs."""

import math
from enum import IntEnum
from functools import cached_property

import torch
from torch import Tensor

from onehop.native import CPU, address, extension

LARGEST = 1 << 60
"""A number of pairs that is too large for the kernels."""


class Kind(IntEnum):
    """The set of pairs to draw from; onehop::PairKind in csrc/include/onehop/negatives.hpp."""

    ALL = 0
    NO_LOOPS = 1
    UPPER = 2


class Pairs:
    """The pairs of nodes of a kind, numbered row by row; some of them are edges.

    Args:
        edge_index: [2, E], int64, on the CPU.
        kind: All pairs, pairs of two different nodes, or pairs whose second node is greater.
        rows: The number of nodes in the first row of the edges, at least 1.
        cols: The number of nodes in the second row, at least 1; it must equal ``rows`` unless ``kind`` is
            ``ALL``.
        loops: Whether pairs of a node with itself count as edges; only for ``ALL``.

    Attributes:
        population: The number of pairs, below ``LARGEST``.
    """

    def __init__(self, edge_index: Tensor, kind: Kind, rows: int, cols: int, loops: bool = False) -> None:
        self.population = {
            Kind.ALL: rows * cols,
            Kind.NO_LOOPS: rows * (rows - 1),
            Kind.UPPER: rows * (rows - 1) // 2,
        }[kind]
        self._kind, self._edge_index = kind, edge_index
        row, col = edge_index
        self._call = call = extension.EdgePairs()
        call.kind, call.population, call.loops = kind, self.population, loops
        call.rows, call.cols, call.edges = rows, cols, row.numel()
        call.row, call.row_stride = address(row), row.stride(0)
        call.col, call.col_stride = address(col), col.stride(0)

    def count(self) -> int | None:
        """Return the number of edges among the pairs, with repetitions; None if a node is out of range.

        The other methods need nodes in range.
        """
        count: int = extension.count_pairs(self._call)
        return None if count < 0 else count

    def draw(self, state: Tensor, size: int, count: int) -> Tensor:
        """Draw up to three samples of all pairs, until there are enough pairs that are not edges.

        Args:
            state: [625], int64: the generator's state from ``random.getstate``; it is advanced.
            size: The number of pairs in a sample, at least 1. If there are no more pairs than this, a sample
                is all pairs in order.
            count: The number of pairs to return, at least 1.

        Returns:
            The pairs, [2, n], int64; n is at most ``count``. For ``Kind.UPPER``, [2, 2 n], with the reverse
            pairs in the second half.
        """
        count, size = min(count, self.population), min(size, self.population)
        pairs = torch.empty(count, dtype=torch.int64, device=CPU)
        sample = extension.SampleCall()
        sample.size, sample.wanted = size, count
        # This is CPython's condition, with the same rounding.
        sample.pool = self.population <= 21 + (4 ** math.ceil(math.log(size * 3, 4)) if size > 5 else 0)
        sample.state, sample.pairs = address(state), address(pairs)
        drawn = extension.draw_pairs(self._call, sample)
        columns = 2 * drawn if self._kind is Kind.UPPER else drawn
        out = torch.empty(2, columns, dtype=torch.int64, device=CPU)
        extension.write_pairs(self._call, address(pairs), drawn, address(out[0]), address(out[1]))
        return out

    def edges_with(self, col: Tensor, which: Tensor | None = None) -> Tensor:
        """Return the numbers of the edges that, with another second node, are also edges of the graph.

        Args:
            col: [n], int64, contiguous: the second nodes, in range.
            which: [n], int64, contiguous: the numbers of the edges; None means all edges in order.
        """
        numbers = torch.empty_like(col)
        of_edges = 0 if which is None else address(which)
        hits = self._table.find(self._call, of_edges, address(col), col.numel(), address(numbers))
        return numbers[:hits]

    @cached_property
    def _table(self) -> extension.PairTable:
        return extension.PairTable(self._call, 0)
