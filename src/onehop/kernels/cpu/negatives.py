"""Pairs of nodes without an edge, drawn as Python's ``random.sample`` draws them, and found."""

import math
from enum import IntEnum
from functools import cached_property

import torch
from torch import Tensor

from onehop.native import CPU, address, extension

LARGEST = 1 << 60
"""Pairs that are too many for the kernels."""


class Kind(IntEnum):
    """The pairs that are drawn from: onehop::PairKind in csrc/include/onehop/negatives.hpp."""

    ALL = 0
    NO_LOOPS = 1
    UPPER = 2


class Pairs:
    """The pairs of nodes of a kind, numbered row by row, some of which are edges.

    Args:
        edge_index: [2, E], int64, on the CPU.
        kind: Every pair, pairs of two different nodes, or pairs whose second node is greater.
        rows: The number of nodes in the first row of the edges, at least 1.
        cols: The number of nodes in the second row, at least 1; ``rows`` except for every pair.
        loops: Whether every pair of a node with itself counts as an edge; of every pair only.

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
        """The number of edges of the kind, with repetitions; None if a node is out of range.

        The other methods need nodes in range.
        """
        count: int = extension.count_pairs(self._call)
        return None if count < 0 else count

    def draw(self, state: Tensor, size: int, count: int) -> Tensor:
        """Draws up to three samples of all pairs, until they have enough pairs that are no edges.

        Args:
            state: [625], int64, of the generator, as ``random.getstate`` gives it; is moved on.
            size: The number of pairs in a sample, at least 1. If there are no more pairs, a sample is all of
                them, in order.
            count: The number of pairs to return, at least 1.

        Returns:
            [2, n], int64: the pairs; n is ``count``, or less. For ``Kind.UPPER``, [2, 2 n], with the reverse
            pairs in the second half.
        """
        count, size = min(count, self.population), min(size, self.population)
        pairs = torch.empty(count, dtype=torch.int64, device=CPU)
        sample = extension.SampleCall()
        sample.size, sample.wanted = size, count
        # CPython's decision, with its rounding.
        sample.pool = self.population <= 21 + (4 ** math.ceil(math.log(size * 3, 4)) if size > 5 else 0)
        sample.state, sample.pairs = address(state), address(pairs)
        drawn = extension.draw_pairs(self._call, sample)
        columns = 2 * drawn if self._kind is Kind.UPPER else drawn
        out = torch.empty(2, columns, dtype=torch.int64, device=CPU)
        extension.write_pairs(self._call, address(pairs), drawn, address(out[0]), address(out[1]))
        return out

    def edges_with(self, col: Tensor, which: Tensor | None = None) -> Tensor:
        """The numbers of the edges that, with another second node, are edges of the graph as well.

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
