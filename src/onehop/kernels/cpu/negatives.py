"""Pairs of nodes without an edge, drawn as Python's ``random.sample`` draws them, and found."""

import math
from enum import IntEnum

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
        kind: Every pair, those of two nodes, or those whose second node is greater.
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
        self._edge_index, self._kind, self._rows, self._cols, self._loops = (
            edge_index,
            kind,
            rows,
            cols,
            loops,
        )

    def count(self) -> int | None:
        """The number of edges of the kind, with repetitions; None if a node is out of range."""
        count: int = extension.count_pairs(self._call())
        return None if count < 0 else count

    def draw(self, state: Tensor, size: int, wanted: int) -> Tensor:
        """Draws pairs that are no edges, after :meth:`count` has found all nodes in range.

        Up to three samples of all pairs are drawn, until they have enough pairs that are no edges.

        Args:
            state: [625], int64, of the generator, as ``random.getstate`` gives it; is moved on.
            size: The number of pairs in a sample, at least 1. If there are no more pairs, a sample is all of
                them, in order.
            wanted: The number of pairs to return, at least 1.

        Returns:
            [2, n], int64; n is ``wanted``, or less. For ``Kind.UPPER``, [2, 2 n], with the reverse pairs in
            the second half.
        """
        wanted, size = min(wanted, self.population), min(size, self.population)
        pairs = torch.empty(wanted, dtype=torch.int64, device=CPU)
        sample = extension.SampleCall()
        sample.population, sample.size, sample.wanted = self.population, size, wanted
        # As CPython decides it, with the same rounding.
        sample.pool = self.population <= 21 + (4 ** math.ceil(math.log(size * 3, 4)) if size > 5 else 0)
        sample.state, sample.pairs = address(state), address(pairs)
        call = self._call()
        drawn = extension.draw_pairs(call, sample)
        columns = 2 * drawn if self._kind is Kind.UPPER else drawn
        out = torch.empty(2, columns, dtype=torch.int64, device=CPU)
        extension.write_pairs(
            call, address(pairs), drawn, address(out), address(out) + columns * out.itemsize
        )
        return out

    def table(self) -> "PairTable":
        """The edges, to be looked up, after :meth:`count` has found all nodes in range."""
        return PairTable(self._call(), self._edge_index)

    def _call(self) -> extension.EdgePairs:
        row, col = self._edge_index
        call = extension.EdgePairs()
        call.kind, call.rows, call.cols, call.loops = self._kind, self._rows, self._cols, self._loops
        call.row, call.col = address(row), address(col)
        call.row_stride, call.col_stride, call.edges = row.stride(0), col.stride(0), row.numel()
        return call


class PairTable:
    """The edges of a graph, to find out which pairs are edges.

    Args:
        call: The edges, of ``Kind.ALL``.
        edge_index: The tensor that they are in.
    """

    def __init__(self, call: extension.EdgePairs, edge_index: Tensor) -> None:
        self._call, self._edge_index = call, edge_index
        self._table = extension.PairTable(call, 0)

    def found(self, col: Tensor, which: Tensor | None = None) -> Tensor:
        """The numbers of the edges that are edges again after they got other second nodes.

        Args:
            col: [n], int64, contiguous: the second nodes, in range.
            which: [n], int64, contiguous: the numbers of the edges; None means all edges in order.
        """
        found = torch.empty_like(col)
        of_edges = 0 if which is None else address(which)
        hits = self._table.find(self._call, of_edges, address(col), col.numel(), address(found))
        return found[:hits]
