"""Statistics of rows, scaled by functions of the degree, times a matrix, without joining all of them.

Principal neighbourhood aggregation (https://arxiv.org/abs/2004.05718) concatenates A statistics times S
scales, [N, S A F], and multiplies them. Rows of the same degree have the same scales, so here their
statistics are multiplied by one sum of the matrices of all scales: S times fewer products. Rows of rare
degrees are multiplied by all matrices, and then scaled. A few rows are processed at a time, and no matrix is
wider than A F or S M.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.kernels.cpu.rows import take_rows
from onehop.kernels.products import Product
from onehop.ops.linear import FORWARD, TO_WEIGHT, library_of
from onehop.ops.moments import deviation, variance
from onehop.ops.recomputed import Needs, Whole, recomputed
from onehop.reference.scaled_statistics import scaled_statistics as reference


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A block of rows.

    Attributes:
        begin: The first position of the block in the order.
        end: The position after the last.
        alike: Whether all rows have the same degree.
    """

    begin: int
    end: int
    alike: bool


@dataclass(frozen=True, slots=True)
class RowsByDegree:
    """Rows of a graph, ordered so that rows of the same degree are consecutive.

    Attributes:
        order: [num_dst], int64: the numbers of the rows.
        blocks: The blocks of rows.
    """

    order: Tensor
    blocks: tuple[RowBlock, ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the order."""
        return self.order.nbytes


def rows_by_degree(graph: Graph, fewest: int, most: int) -> RowsByDegree:
    """Return the rows of a graph in blocks by their degrees, cached with the graph.

    Args:
        graph: The graph.
        fewest: How many rows of a degree there must be for separate blocks.
        most: The maximal number of rows of a block.
    """
    key = ("rows by degree", fewest, most)
    with graph.lock:
        rows: RowsByDegree | None = graph.derived.get(key)
        if rows is None:
            rows = graph.derived[key] = _divided(graph.in_degrees, fewest, most)
    return rows


def _divided(degrees: Tensor, fewest: int, most: int) -> RowsByDegree:
    order = torch.argsort(degrees, stable=True)
    _, which, counts = torch.unique_consecutive(degrees[order], return_inverse=True, return_counts=True)
    many = counts >= fewest
    apart = many[which]
    blocks, begin = [], 0
    for count in counts[many].tolist():
        blocks += _blocks(begin, begin + count, most, alike=True)
        begin += count
    blocks += _blocks(begin, len(order), most, alike=False)
    return RowsByDegree(torch.cat([order[apart], order[~apart]]), tuple(blocks))


def _blocks(begin: int, end: int, most: int, alike: bool) -> list[RowBlock]:
    return [RowBlock(first, min(first + most, end), alike) for first in range(begin, end, most)]


_OF_MEANS = {"var": variance, "std": deviation}


def scaled_statistics(
    graph: Graph,
    reduced: Mapping[str, Tensor],
    statistics: Sequence[str],
    scales: Tensor,
    weight: Tensor,
    fastest: bool = False,
) -> Tensor:
    """Compute statistics of each destination, times each of its scales, times a matrix.

    ``out[i] = sum over scales s of scales[i, s] * (all statistics of i, concatenated) weight[s]``

    Args:
        graph: The graph that the rows belong to, on the CPU.
        reduced: [num_dst, F] each, float32 or float64: the reductions from which statistics are made, by
            name. Differentiable.
        statistics: Names in ``reduced``, or "var" or "std", which are computed from "mean" and "squares" (the
            mean of the squares).
        scales: [num_dst, S], of the same dtype; they must be equal for destinations of equal degrees, which
            is not checked. No gradient passes through them.
        weight: [S, statistics * F, M], of the same dtype. Differentiable.
        fastest: Whether products may run in another library than torch's own.

    Returns:
        [num_dst, M].
    """
    # A block has as many bytes as two blocks of messages; products of fewer rows do not fill the libraries'
    # own blocks.
    most = 2 * thresholds.now.block_bytes // max(weight.size(1) * weight.element_size(), 1)
    by_degree = rows_by_degree(graph, thresholds.now.degree_rows, max(most, thresholds.now.block_edges))
    run = _Run(by_degree, tuple(reduced), tuple(statistics), scales.detach(), fastest)
    out: Tensor = recomputed(run, weight, *reduced.values())
    return out


@dataclass(frozen=True, slots=True)
class _Run(Whole):
    """One call of :func:`scaled_statistics`.

    Attributes:
        by_degree: The rows.
        names: The names of the reductions.
        statistics: The names of the statistics.
        scales: [N, S].
        fastest: Whether products may run in another library than torch's own.
    """

    by_degree: RowsByDegree
    names: tuple[str, ...]
    statistics: tuple[str, ...]
    scales: Tensor
    fastest: bool

    def forward(self, operands: Sequence[Tensor]) -> tuple[Tensor, tuple[()]]:
        """Return the product of the statistics and the weight, without recording."""
        weight, *reduced = operands
        with torch.no_grad():
            turned, times = weight.transpose(1, 2).contiguous(), self._library(FORWARD, weight.shape)
            wide = turned.flatten(0, 1)
            out = weight.new_empty(len(self.by_degree.order), weight.size(2))
            for block, rows in self._blocks():
                side = self._side([take_rows(each, rows) for each in reduced])
                if block.alike:
                    product = times(side, self._matrix(turned, rows), None)
                else:
                    of_each = times(side, wide, None).view(len(rows), weight.size(0), weight.size(2))
                    product = (of_each * take_rows(self.scales, rows).unsqueeze(2)).sum(1)
                out.index_copy_(0, rows, product)
        return out, ()

    def gradients(
        self, needs: Needs, operands: Sequence[Tensor], saved: Sequence[Any], *grads: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Return the gradients of the weight and of the reduced rows, for those that need one."""
        (weight, *reduced), (grad,) = operands, grads
        assert grad is not None
        scales_count, height, width = weight.shape
        # wide is [statistics * F, S * M].
        wide, grad = weight.transpose(0, 1).flatten(1), grad.contiguous()
        times = self._library(FORWARD, (scales_count, width, height))
        over_rows = self._library(TO_WEIGHT, (scales_count, width, height))
        of_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
        numbers = [at for at, needed in enumerate(needs[1:]) if needed]
        of_reduced = [torch.empty_like(reduced[at], memory_format=torch.contiguous_format) for at in numbers]
        for block, rows in self._blocks():
            pulled = take_rows(grad, rows)
            pieces = [
                take_rows(each, rows).requires_grad_(need)
                for each, need in zip(reduced, needs[1:], strict=True)
            ]
            with torch.enable_grad():
                side = self._side(pieces)
            scales = take_rows(self.scales, rows[:1] if block.alike else rows)
            if block.alike:
                of_side = times(pulled, self._matrix(weight, rows), None)
            else:
                pulled = (pulled.unsqueeze(1) * scales.unsqueeze(2)).flatten(1)
                of_side = times(pulled, wide, None)
            if needs[0]:
                product = over_rows(side.detach(), pulled, None)
                if block.alike:
                    of_weight += scales.view(-1, 1, 1) * product
                else:
                    of_weight += product.view(height, scales_count, width).transpose(0, 1)
            if numbers:
                parts = torch.autograd.grad(
                    side, [pieces[at] for at in numbers], of_side, materialize_grads=True
                )
                for out, part in zip(of_reduced, parts, strict=True):
                    out.index_copy_(0, rows, part)
        return (*([of_weight] if needs[0] else []), *of_reduced)

    def whole(self, *operands: Tensor) -> Tensor:
        """Return the product, computed with all statistics concatenated."""
        weight, *reduced = operands
        named = dict(zip(self.names, reduced, strict=True))
        return reference(named, self.statistics, self.scales, weight)

    def _blocks(self) -> Iterator[tuple[RowBlock, Tensor]]:
        for block in self.by_degree.blocks:
            yield block, self.by_degree.order[block.begin : block.end]

    def _side(self, pieces: Sequence[Tensor]) -> Tensor:
        """Return the concatenated statistics of some rows, [rows, statistics * F]."""
        named = dict(zip(self.names, pieces, strict=True))
        columns = [
            _OF_MEANS[name](named["mean"], named["squares"]) if name in _OF_MEANS else named[name]
            for name in self.statistics
        ]
        return torch.cat(columns, 1)

    def _library(self, kind: str, sizes: Sequence[int]) -> Product:
        """Return the library for products of a block with one scale's matrix, for these sizes."""
        blocks = self.by_degree.blocks
        rows = max((block.end - block.begin for block in blocks), default=0)
        _, inputs, outputs = sizes
        return library_of(kind, rows, inputs, outputs, self.scales.dtype, self.fastest)

    def _matrix(self, weight: Tensor, rows: Tensor) -> Tensor:
        """Return the matrix for rows of the same degree, [statistics * F, M], or its transpose."""
        scales = take_rows(self.scales, rows[:1])
        return (scales @ weight.reshape(weight.size(0), -1)).view(weight.shape[1:])
